//! Public names: `<server>__<name>`, so that two servers can offer the same.

use std::sync::Arc;

use crate::upstream::Server;

const BETWEEN: &str = "__";

/// The public name of something that a server calls `name`.
pub(crate) fn public(server: &str, name: &str) -> String {
    format!("{server}{BETWEEN}{name}")
}

/// The server of a public name, and its own name for it. Server names have no `__`, so this is the
/// only reading.
pub(crate) fn split<'a, 'b>(
    servers: &'a [Arc<Server>],
    public: &'b str,
) -> Option<(&'a Arc<Server>, &'b str)> {
    let (server, name) = public.split_once(BETWEEN)?;
    servers.iter().find(|known| known.name == server).map(|server| (server, name))
}
