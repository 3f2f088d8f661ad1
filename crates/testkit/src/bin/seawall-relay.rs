//! The `seawall-relay` program: a stdio server whose words come from a socket; the world behind it decides what it says.

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let socket = std::env::args_os().nth(1).unwrap_or_default();
    seawall_testkit::world::server::relay::relay(socket.as_ref()).await?;
    // A pending read of stdin would hold the runtime's shutdown until the next line.
    std::process::exit(0)
}
