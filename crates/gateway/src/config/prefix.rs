//! Decides whether the names of tools have their server before them.

/// Whether the names on an endpoint have their server before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamePrefix {
    /// Where there are several servers: an only server keeps its names, which change when a second
    /// one is configured.
    #[default]
    Auto,
    /// Also where there is one server, so that no name changes with the number of servers.
    Always,
}

impl NamePrefix {
    /// Whether so many servers have their names before those of their tools.
    pub fn is_used(self, servers: usize) -> bool {
        servers > 1 || self == Self::Always
    }
}
