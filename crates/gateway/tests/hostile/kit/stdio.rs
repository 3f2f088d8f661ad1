//! A client on a pipe: `seawall run` around one server, or `seawall serve --stdio` around several.

use std::process::{ExitStatus, Stdio as Pipes};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::client::{initialize, tool_call};
use super::process::{self, Memory, SEAWALL, scripted};
use super::{text, until, within};

/// A gateway with one client, which is us.
pub(crate) struct Stdio {
    pub(crate) input: Option<ChildStdin>,
    pub(crate) output: Lines<BufReader<ChildStdout>>,
    tag: String,
    process: Child,
}

impl Stdio {
    /// `seawall run` around a scripted server; `$TAG` in the arguments is a word to find its
    /// processes by.
    pub(crate) async fn run(args: &[&str]) -> Self {
        Self::started(Command::new(SEAWALL), args)
    }

    /// The same, by a `command` that starts `seawall` with the arguments it gets.
    pub(crate) fn started(mut command: Command, args: &[&str]) -> Self {
        let tag = process::tag();
        command
            .args(["run", "--no-catalog-cache", "--", scripted()])
            .args(args.iter().map(|arg| arg.replace("$TAG", &tag)));
        command
            .stdin(Pipes::piped())
            .stdout(Pipes::piped())
            .stderr(Pipes::null())
            .kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { input: process.stdin.take(), output, tag, process }
    }

    /// The same, past the handshake.
    pub(crate) async fn ready(args: &[&str]) -> Self {
        Self::run(args).await.greeted().await
    }

    /// Past the handshake.
    pub(crate) async fn greeted(mut self) -> Self {
        self.say(&initialize()).await;
        assert!(self.answer(&json!(0)).await.get("result").is_some());
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        self
    }

    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id().unwrap()
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory::of(self.pid())
    }

    /// Writes bytes as they are.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        within(20, "the gateway reads", input.write_all(bytes)).await.unwrap();
    }

    /// Writes a message.
    pub(crate) async fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    /// The next line.
    pub(crate) async fn hear(&mut self) -> Value {
        let line = within(20, "a line", self.output.next_line())
            .await
            .unwrap()
            .expect("the gateway lives");
        serde_json::from_str(&line).unwrap()
    }

    /// The next answer with this id; what else comes is passed over.
    pub(crate) async fn answer(&mut self, id: &Value) -> Value {
        loop {
            let message = self.hear().await;
            if message["id"] == *id && message.get("method").is_none() {
                return message;
            }
        }
    }

    /// A tool call and its answer.
    pub(crate) async fn call(
        &mut self,
        id: impl Into<Value>,
        tool: &str,
        arguments: Value,
    ) -> Value {
        let id = id.into();
        self.say(&tool_call(id.clone(), tool, arguments)).await;
        self.answer(&id).await
    }

    /// A call that must work.
    pub(crate) async fn works(&mut self) {
        let answer = self.call("works", "echo", json!({"text": "still here"})).await;
        assert_eq!(text(&answer), "still here");
    }

    /// Closes its stdin, and makes sure that it and everything it started is gone.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        drop(self.input.take());
        let exit = within(20, "the gateway ends", self.process.wait()).await.unwrap();
        until(2, "no process is left behind", async || process::processes(&self.tag).is_empty())
            .await;
        exit
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        // Only when a test fails is there anything left to end here.
        process::end_all(&self.tag);
    }
}
