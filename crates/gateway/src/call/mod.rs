//! The life of a call, from the client that asked to the server and back. Read `dispatch` first.

pub mod dispatch;
pub mod execute;
pub mod fallback;
pub mod idle_timeout;
pub mod initialize;
pub mod late_list;
pub mod list;
pub mod listen;
pub mod merged_lists;
pub mod reply;
pub mod required;
pub mod resources;
pub mod target;
