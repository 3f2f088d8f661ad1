//! Decides whether whoever writes to stdin has closed its end, also while bytes wait to be read.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::stdin;

/// Whether nobody can write to stdin any more. A file says no: its reader comes to its end.
pub(crate) fn is_closed() -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A pipe hangs up; a socket, which node gives to its children, tells it of one direction.
    let stdin = stdin();
    let mut ends = [PollFd::new(&stdin, PollFlags::RDHUP)];
    let is_polled = poll(&mut ends, Some(&at_once)).is_ok();
    is_polled && ends[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP)
}
