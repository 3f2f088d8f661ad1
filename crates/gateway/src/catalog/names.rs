//! Decides public names: `<server>__<name>`, so that two servers can offer a tool of the same name.

use std::sync::Arc;

use crate::upstream::Server;

const BETWEEN: &str = "__";

/// The public name of an entry that the server calls `name`.
pub(crate) fn public(server: &str, name: &str) -> String {
    format!("{server}{BETWEEN}{name}")
}

/// The server of a public name, and the server's own name for the entry. Server names contain no
/// `__`, so the first one ends the server's name.
pub(crate) fn split<'a, 'b>(
    servers: &'a [Arc<Server>],
    public: &'b str,
) -> Option<(&'a Arc<Server>, &'b str)> {
    let (server, name) = public.split_once(BETWEEN)?;
    servers.iter().find(|known| known.name == server).map(|server| (server, name))
}
