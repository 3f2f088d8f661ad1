//! The `seawall-relay` program: a stdio server whose words come from a socket; the world behind it
//! decides what it says.

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let socket = std::env::args_os().nth(1).unwrap_or_default();
    let relayed = seawall_testkit::world::server::relay::relay(socket.as_ref()).await;
    // Also when it failed: a pending read of stdin would hold the runtime's shutdown until the next
    // line.
    std::process::exit(i32::from(relayed.is_err()))
}
