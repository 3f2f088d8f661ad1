//! The real OpenFGA, in memory, with a store and the model that the bridge asks about.

use std::io;

use serde_json::{Value, json};

use super::process::Process;
use super::{post, program};

/// Who has which relation to what: `["user:ann", "can_call", "mcp_gateway:list"]`.
pub type Tuple<'a> = [&'a str; 3];

/// OpenFGA on loopback ports.
pub struct OpenFga {
    process: Process,
    store: String,
}

impl OpenFga {
    /// Starts it with these grants. `None`: the program was not built (see [`program`]).
    pub async fn start(grants: &[Tuple<'_>]) -> io::Result<Option<Self>> {
        let Some(path) = program("openfga")? else { return Ok(None) };
        let arguments = |[http, grpc]: [std::net::SocketAddr; 2]| {
            ["run", "--datastore-engine=memory", "--playground-enabled=false"]
                .into_iter()
                .chain(["--metrics-enabled=false", "--log-level=none"])
                .map(str::to_owned)
                .chain([format!("--http-addr={http}"), format!("--grpc-addr={grpc}")])
                .collect()
        };
        let process = Process::start(&path, arguments, "/healthz").await?;
        let url = format!("http://{}/stores", process.addresses[0]);
        let store = post(&url, &json!({"name": "seawall"})).await?;
        let store = store["id"].as_str().unwrap_or_default().to_owned();
        let openfga = Self { process, store };
        post(&openfga.below("authorization-models"), &model()).await?;
        openfga.grant(grants).await?;
        Ok(Some(openfga))
    }

    /// The HTTP address as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.process.addresses[0])
    }

    /// The id of the store.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Writes grants that are not there yet.
    pub async fn grant(&self, grants: &[Tuple<'_>]) -> io::Result<()> {
        self.write("writes", grants).await
    }

    /// Takes grants back that are there.
    pub async fn revoke(&self, grants: &[Tuple<'_>]) -> io::Result<()> {
        self.write("deletes", grants).await
    }

    /// Whether OpenFGA allows it.
    pub async fn allows(&self, [user, relation, object]: Tuple<'_>) -> io::Result<bool> {
        let key = json!({"user": user, "relation": relation, "object": object});
        let answer = post(&self.below("check"), &json!({"tuple_key": key})).await?;
        Ok(answer["allowed"] == true)
    }

    /// Stops it where it is: connections are taken, nobody answers.
    pub fn freeze(&self) -> io::Result<()> {
        self.process.freeze()
    }

    /// Lets it go on.
    pub fn thaw(&self) -> io::Result<()> {
        self.process.thaw()
    }

    /// Ends it for good: what was in memory is gone.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.process.kill().await
    }

    async fn write(&self, how: &str, grants: &[Tuple<'_>]) -> io::Result<()> {
        // OpenFGA takes at most a hundred at once.
        for some in grants.chunks(100) {
            let keys = some.iter().map(|[user, relation, object]| {
                json!({"user": user, "relation": relation, "object": object})
            });
            let keys: Vec<Value> = keys.collect();
            post(&self.below("write"), &json!({how: {"tuple_keys": keys}})).await?;
        }
        Ok(())
    }

    fn below(&self, path: &str) -> String {
        format!("{}/stores/{}/{path}", self.url(), self.store)
    }
}

/// The model: callers are users and service accounts, and agents where tools are concerned.
fn model() -> Value {
    let relation = |object: &str, relation: &str, users: &[&str]| {
        let users: Vec<_> = users.iter().map(|user| json!({"type": user})).collect();
        json!({
            "type": object,
            "relations": {relation: {"this": {}}},
            "metadata": {"relations": {relation: {"directly_related_user_types": users}}},
        })
    };
    let callers = ["user", "service_account"];
    json!({
        "schema_version": "1.1",
        "type_definitions": [
            {"type": "user"},
            {"type": "service_account"},
            relation("agent", "can_use", &callers),
            relation("mcp_gateway", "can_call", &callers),
            relation("mcp_server", "can_invoke", &callers),
            relation("tool", "can_call", &["user", "service_account", "agent"]),
        ],
    })
}
