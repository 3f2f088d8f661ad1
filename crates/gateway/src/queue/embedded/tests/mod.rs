//! Tests the promises of the queue in a file: damage, full disks and power cuts.

mod damage;
mod disk;
mod failing;
mod power;

use std::time::Duration;

use seawall::Effect;

use crate::queue::tests::{call, fast_folder, open, today, write};
use crate::queue::{QueueBounds, QueueStore, StoreTrouble};
