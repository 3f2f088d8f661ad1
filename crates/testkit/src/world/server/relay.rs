//! The child of a world: everything from stdin goes to a socket, everything from there to stdout.

use std::path::Path;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

/// Relays until either side ends.
pub async fn relay(socket: &Path) -> std::io::Result<()> {
    let (mut from, mut to) = UnixStream::connect(socket).await?.into_split();
    to.write_all(format!("{}\n", std::process::id()).as_bytes()).await?;
    let (mut stdin, mut stdout) = (tokio::io::stdin(), tokio::io::stdout());
    tokio::select! {
        done = tokio::io::copy(&mut stdin, &mut to) => done,
        done = tokio::io::copy(&mut from, &mut stdout) => done,
    }?;
    stdout.flush().await
}
