//! Programs that we did not write, started on the loopback: `tests/authz/tools` builds them below
//! `target/go`. Where one is missing, what needs it is left out and counted, or fails in CI.

mod istio;
mod opa;
mod openfga;
mod process;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

pub use self::istio::Istio;
pub use self::opa::Opa;
pub use self::openfga::{OpenFga, Tuple};

/// How many tests went without their program.
static LEFT_OUT: AtomicUsize = AtomicUsize::new(0);

/// Where the program is. `None`: it was not built; a line on stderr has said what is left out. With
/// `SEAWALL_CI=1` that is an error.
pub fn program(name: &str) -> io::Result<Option<PathBuf>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/go/bin").join(name);
    if path.is_file() {
        return Ok(Some(path));
    }
    let lack = format!("{name} is not built: run tests/authz/tools");
    if std::env::var("SEAWALL_CI").is_ok_and(|is| is == "1") {
        return Err(io::Error::new(io::ErrorKind::NotFound, lack));
    }
    let count = LEFT_OUT.fetch_add(1, Ordering::Relaxed) + 1;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    writeln!(io::stderr(), "left out ({count} in this program): {test}; {lack}")?;
    Ok(None)
}

/// Sends JSON on a connection of its own and reads JSON; a status that is no success is an error.
pub(super) async fn post(url: &str, body: &Value) -> io::Result<Value> {
    let request = http::Request::post(url).header("content-type", "application/json");
    send(request.body(Full::new(body.to_string().into())).map_err(io::Error::other)?).await
}

/// Fetches JSON on a connection of its own; what is none is null.
pub(super) async fn get(url: &str) -> io::Result<Value> {
    send(http::Request::get(url).body(Full::default()).map_err(io::Error::other)?).await
}

async fn send(request: http::Request<Full<Bytes>>) -> io::Result<Value> {
    let url = request.uri().to_string();
    let (status, body) = fetch(request).await?;
    if !status.is_success() {
        let body = String::from_utf8_lossy(&body);
        return Err(io::Error::other(format!("{url} answers {status}: {body}")));
    }
    Ok(serde_json::from_slice(&body).unwrap_or_default())
}

async fn fetch(request: http::Request<Full<Bytes>>) -> io::Result<(http::StatusCode, Bytes)> {
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
    let response = client.request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(io::Error::other)?;
    Ok((status, body.to_bytes()))
}
