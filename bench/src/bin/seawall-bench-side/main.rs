//! Decides what stands around the proxies of the overhead bench: `server`, the fast MCP server
//! behind all of them, `relay URL`, the least that any proxy on this runtime can cost, and
//! `authorizer`, which allows everything at once.
//!
//! Each is a process of its own, says its address on stdout, and ends when its stdin does.
#![expect(clippy::print_stdout, reason = "the address is what the bench waits for")]

mod relay;
mod server;

use std::env;
use std::error::Error;
use std::io::Read as _;
use std::net::SocketAddr;
use std::thread;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (mut builder, serving): (Builder, Serving) = match arguments.as_slice() {
        ["server"] => (Builder::new_current_thread(), Box::pin(server::serve())),
        // The threads that the gateway has.
        ["relay", url] => (Builder::new_multi_thread(), Box::pin(relay::serve(url.parse()?))),
        ["authorizer"] => (Builder::new_current_thread(), Box::pin(authorizer())),
        _ => return Err("usage: seawall-bench-side server | relay URL | authorizer".into()),
    };
    thread::spawn(end_with_stdin);
    builder.enable_all().build()?.block_on(serving)
}

type Serving = std::pin::Pin<Box<dyn Future<Output = Result<(), Box<dyn Error + Send + Sync>>>>>;

/// Allows every call over gRPC.
async fn authorizer() -> Result<(), Box<dyn Error + Send + Sync>> {
    let authorizer = seawall_testkit::authz::Authorizer::start().await?;
    println!("{}", authorizer.url());
    std::future::pending().await
}

/// Whoever started us is gone when stdin ends, however it went.
fn end_with_stdin() {
    let _rest = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

/// A listener on a free port, and its address for whoever waits.
async fn listen() -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    println!("http://{}", listener.local_addr()?);
    Ok(listener)
}

/// The next connection.
async fn accept(listener: &TcpListener) -> std::io::Result<TcpStream> {
    let (tcp, _) = listener.accept().await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}
