//! Decides whether whoever writes to stdin has closed its end, also while bytes wait to be read.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::stdin;

use super::system;

/// Whether nobody can write to stdin any more. A file says no: its reader comes to its end.
pub(crate) fn is_closed() -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let hung_up = PollFlags::HUP | system::HALF_CLOSED;
    let stdin = stdin();
    let mut ends = [PollFd::new(&stdin, system::HALF_CLOSED)];
    let is_polled = poll(&mut ends, Some(&at_once)).is_ok();
    is_polled && ends[0].revents().intersects(hung_up)
}
