//! The `seawall-fixture` program: reads its arguments and serves the fixture as they say until it
//! is told to end.
#![allow(clippy::print_stdout, reason = "the line with the address is the program's interface")]

use std::{io, net::SocketAddr};

use clap::Parser;
use seawall_testkit::fixture::{self, Eras, Script};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

/// An MCP server that does everything the official conformance suite asks for.
#[derive(Parser)]
#[command(name = "seawall-fixture")]
struct Arguments {
    /// Speak newline-delimited JSON-RPC on stdin and stdout.
    #[arg(long, conflicts_with = "listen")]
    stdio: bool,
    /// Serve streamable HTTP at this address, below `/mcp`.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Serve HTTP with server-sent events of before streamable HTTP at this address, in the legacy
    /// era.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["stdio", "listen", "era", "ws"])]
    sse: Option<SocketAddr>,
    /// Serve WebSockets at this address, in the legacy era.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["stdio", "listen", "era"])]
    ws: Option<SocketAddr>,
    /// The protocol eras the server knows.
    #[arg(long, value_enum, default_value_t = Eras::Both)]
    era: Eras,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = serve(arguments) => ended,
        _ = terminate.recv() => Ok(()),
    }?;
    // A pending read of stdin would hold the runtime's shutdown until the next line.
    std::process::exit(0)
}

async fn serve(arguments: Arguments) -> io::Result<()> {
    if arguments.stdio {
        return fixture::serve_lines(tokio::io::stdin(), tokio::io::stdout(), arguments.era).await;
    }
    if let Some(address) = arguments.sse {
        let listener = TcpListener::bind(address).await?;
        println!("listening on http://{}/sse", listener.local_addr()?);
        return fixture::serve_sse(listener, Script::default()).await;
    }
    if let Some(address) = arguments.ws {
        let listener = TcpListener::bind(address).await?;
        println!("listening on ws://{}/ws", listener.local_addr()?);
        return fixture::serve_ws(listener, Script::default()).await;
    }
    let listener = TcpListener::bind(arguments.listen).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    fixture::serve_http(listener, arguments.era).await
}
