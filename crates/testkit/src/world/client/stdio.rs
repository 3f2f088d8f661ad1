//! A client's way out over pipes: `seawall run` as its child.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex as Cell, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{Mutex, oneshot};
use tokio::time::{Instant, timeout};

use super::Client;
use crate::world::gateway;
use crate::world::notes::Notes;
use crate::world::plan::{Era, Leave};

/// How long the wrapper may take to greet and to end.
const PATIENCE: Duration = Duration::from_secs(8);

/// The requests that were sent, by id: under which tag, and their bytes.
type Waiting = Arc<Cell<HashMap<String, (String, Value)>>>;

/// What a client on pipes holds.
pub(super) struct Pipe {
    seawall: PathBuf,
    folder: PathBuf,
    server: usize,
    running: Mutex<Option<Running>>,
}

struct Running {
    child: Child,
    stdin: ChildStdin,
    waiting: Waiting,
}

impl Pipe {
    pub(super) fn new(seawall: &Path, folder: &Path, server: usize) -> Self {
        let (seawall, folder) = (seawall.to_owned(), folder.to_owned());
        Self { seawall, folder, server, running: Mutex::default() }
    }

    /// Sees to it that the wrapper runs and was greeted.
    pub(super) async fn ready(&self, client: &Arc<Client>) {
        let mut running = self.running.lock().await;
        if running.is_some() {
            return;
        }
        match self.start(client).await {
            Ok(started) => *running = Some(started),
            Err(why) => {
                client.shared.notes.strange(format!("c{}: seawall run {why}", client.place))
            }
        }
    }

    async fn start(&self, client: &Arc<Client>) -> Result<Running, String> {
        let mut command =
            gateway::command(&self.seawall, &self.folder).map_err(|error| error.to_string())?;
        command
            .args(["run", "--name", &format!("s{}", self.server), "--config"])
            .arg(self.folder.join("run.toml"));
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| error.to_string())?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("has no pipes".to_owned());
        };
        let waiting = Waiting::default();
        let (greeted, hello) = oneshot::channel();
        tokio::spawn(read(Arc::clone(client), stdout, Arc::clone(&waiting), greeted));
        let mut running = Running { child, stdin, waiting };
        if client.plan.era == Era::Legacy {
            running.say(&client.hello()).await;
            if timeout(PATIENCE, hello).await.is_err() {
                return Err("does not greet".to_owned());
            }
            running.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        }
        Ok(running)
    }

    pub(super) async fn ask(&self, message: &Value, tag: &str) {
        let mut running = self.running.lock().await;
        let Some(running) = running.as_mut() else { return };
        running.awaits(message, tag);
        running.say(message).await;
    }

    pub(super) async fn tell(&self, method: &str, params: Value) {
        self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    async fn say(&self, message: &Value) {
        if let Some(running) = self.running.lock().await.as_mut() {
            running.say(message).await;
        }
    }

    /// Kills the wrapper; the next request starts another one.
    pub(super) async fn kill(&self, notes: &Notes) {
        if let Some(Running { mut child, waiting, .. }) = self.running.lock().await.take() {
            leave(&waiting, notes);
            _ = child.start_kill();
            _ = child.wait().await;
        }
    }

    /// Ends the wrapper, as a client does that goes.
    pub(super) async fn end(&self, notes: &Notes) {
        if let Some(Running { mut child, stdin, waiting }) = self.running.lock().await.take() {
            leave(&waiting, notes);
            drop(stdin);
            if timeout(PATIENCE, child.wait()).await.is_err() {
                _ = child.start_kill();
            }
        }
    }
}

/// Nobody waits for what was sent through a wrapper any more.
fn leave(waiting: &Waiting, notes: &Notes) {
    let left = (Instant::now(), Leave::Dropping);
    for (tag, _) in waiting.lock().unwrap_or_else(PoisonError::into_inner).values() {
        notes.change(tag, |request| {
            request.left = request.left.or(Some(left).filter(|_| !request.is_over()))
        });
    }
}

impl Running {
    fn awaits(&self, message: &Value, tag: &str) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(message["id"].to_string(), (tag.to_owned(), message.clone()));
    }

    async fn say(&mut self, message: &Value) {
        _ = self.stdin.write_all(format!("{message}\n").as_bytes()).await;
    }
}

/// Reads all that the wrapper says, to its end.
async fn read(
    client: Arc<Client>,
    stdout: ChildStdout,
    waiting: Waiting,
    greeted: oneshot::Sender<()>,
) {
    let mut lines = BufReader::new(stdout).lines();
    let mut greeted = Some(greeted);
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(came) = serde_json::from_str::<Value>(&line) else {
            client
                .shared
                .notes
                .strange(format!("c{} read what is no message: {line}", client.place));
            continue;
        };
        if came["id"] == "hello" {
            _ = greeted.take().map(|greeted| greeted.send(()));
        } else {
            take(&client, &waiting, came);
        }
    }
    let notes: &Notes = &client.shared.notes;
    for (tag, _) in waiting.lock().unwrap_or_else(PoisonError::into_inner).values() {
        notes.broke(tag, "the wrapper ended");
    }
}

fn take(client: &Arc<Client>, waiting: &Waiting, came: Value) {
    let notes = &client.shared.notes;
    if let Some(method) = came["method"].as_str() {
        if came.get("id").is_some() {
            let (client, method) = (Arc::clone(client), method.to_owned());
            tokio::spawn(async move {
                let Some(mut reply) = client.reply(&method).await else { return };
                reply["jsonrpc"] = json!("2.0");
                reply["id"] = came["id"].clone();
                if let super::Out::Stdio(pipe) = &client.way {
                    pipe.say(&reply).await;
                }
            });
        }
        return;
    }
    let tag = waiting
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&came["id"].to_string())
        .cloned();
    match tag {
        Some((tag, request)) if came["result"]["resultType"] == "input_required" => {
            notes.change(&tag, |request| request.questions += 1);
            let client = Arc::clone(client);
            tokio::spawn(async move {
                let Some(again) = client.answering(&request, &came["result"], &tag).await else {
                    return;
                };
                if let super::Out::Stdio(pipe) = &client.way {
                    pipe.ask(&again, &tag).await;
                }
            });
        }
        Some((tag, _)) => notes.answer(&tag, came),
        None => notes.strange(format!(
            "c{} was answered under an id that it never used: {came}",
            client.place
        )),
    }
}
