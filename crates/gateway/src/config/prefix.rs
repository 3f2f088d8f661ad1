//! Decides whether tool names carry their server's name as a prefix.

/// When tool names on an endpoint carry their server's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamePrefix {
    /// If there are several servers: a single server keeps its names, which change when a second
    /// one is configured.
    #[default]
    Auto,
    /// Also if there is one server, so that no name changes with the number of servers.
    Always,
}

impl NamePrefix {
    /// Whether tool names carry a prefix with this many servers.
    pub fn is_used(self, servers: usize) -> bool {
        servers > 1 || self == Self::Always
    }
}
