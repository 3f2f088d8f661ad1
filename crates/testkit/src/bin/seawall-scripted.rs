//! The `seawall-scripted` program: a stdio server that does what its arguments and its tools' names
//! say, however hostile.

use clap::Parser;
use seawall_testkit::scripted::{self, Script};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    scripted::serve(Script::parse()).await;
    // A pending read of stdin would hold the runtime's shutdown until the next line.
    std::process::exit(0)
}
