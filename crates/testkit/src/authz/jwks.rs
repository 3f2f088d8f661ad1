//! A server of public keys that rotates them, fails, and goes away.

use std::io;
use std::net::SocketAddr;

use serde_json::json;

use super::http::{HttpAuthorizer, HttpReply};
use super::keys::Key;
use super::script::Act;

/// A JWKS server on a loopback port.
pub struct Jwks {
    server: HttpAuthorizer,
}

impl Jwks {
    /// Serves these keys.
    pub async fn start(keys: &[&Key]) -> io::Result<Self> {
        let jwks = Self { server: HttpAuthorizer::start().await? };
        jwks.serve(keys);
        Ok(jwks)
    }

    /// Where it listens, also while it is gone.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Where the keys are.
    pub fn url(&self) -> String {
        format!("{}/jwks.json", self.server.url())
    }

    /// Serves these keys from now on, whatever it did before: how keys are rotated, and how a
    /// server that hangs or fails gets well.
    pub fn serve(&self, keys: &[&Key]) {
        let keys: Vec<_> = keys.iter().map(|key| key.jwk()).collect();
        let body = json!({"keys": keys}).to_string();
        let found =
            HttpReply::new(200).header("content-type", "application/json").body(body.into_bytes());
        self.server.decide(move |asked| match asked.path.as_str() {
            "/jwks.json" => found.clone().into(),
            _ => HttpReply::new(404).into(),
        });
    }

    /// Takes requests and never answers.
    pub fn hang(&self) {
        self.act(Act::Hang);
    }

    /// Answers with this status.
    pub fn fail(&self, status: u16) {
        self.act(HttpReply::new(status).body("the keys are not to be had"));
    }

    /// Does this with every request.
    pub fn act(&self, act: impl Into<Act<HttpReply>>) {
        self.server.always(act);
    }

    /// How often it was asked since the start.
    pub fn fetches(&self) -> usize {
        self.server.count()
    }

    /// Refuses connections.
    pub async fn stop(&self) {
        self.server.stop().await;
    }

    /// Is there again, on the same port, and does what it did.
    pub async fn again(&self) -> io::Result<()> {
        self.server.again().await
    }
}
