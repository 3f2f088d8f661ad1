//! What an operator reads: lines on stderr. stdout belongs to MCP.

use std::io::Write;

/// Writes one line. A stderr that is gone is no reason to stop.
pub fn line(text: &str) {
    let _gone = writeln!(std::io::stderr().lock(), "seawall: {text}");
}

/// Writes somebody else's line as it is: the wrapper shows what its server shows.
pub fn plain(text: &str) {
    let _gone = writeln!(std::io::stderr().lock(), "{text}");
}
