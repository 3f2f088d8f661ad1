//! Decides which names of the protocol the gateway knows: `_meta` keys, revisions and eras.

/// `_meta`: the revision of a modern request.
pub(crate) const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// `_meta`: the capabilities of a modern client.
pub(crate) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// `_meta`: name and version of a modern client.
pub(crate) const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// `_meta`: name and version of the server.
pub(crate) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// `_meta`: the log level that a modern request asks for.
pub(crate) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// `_meta`: the listen request that a message belongs to.
pub(crate) const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The revision of the modern era.
pub(crate) const MODERN: &str = "2026-07-28";
/// The revisions of the legacy era, newest first.
pub(crate) const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// How a peer speaks: with handshake and session (legacy), or with everything in each request
/// (modern).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Revisions 2024-11-05 to 2025-11-25.
    Legacy,
    /// Revision 2026-07-28.
    Modern,
}
