//! The gateway as a process: started with a configuration, watched from outside, ended, and nothing
//! left behind.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{until, within};

pub(crate) const SEAWALL: &str = env!("CARGO_BIN_EXE_seawall");

/// A server in the configuration.
pub(crate) struct Entry {
    pub(super) text: String,
}

impl Entry {
    /// A scripted process.
    pub(crate) fn scripted(name: &str, args: &[&str]) -> Self {
        Self { text: format!("[servers.{name}]\ncommand = {:?}\nargs = {args:?}\n", scripted()) }
    }

    /// A server behind a URL.
    pub(crate) fn url(name: &str, url: &str) -> Self {
        Self { text: format!("[servers.{name}]\nurl = {url:?}\n") }
    }

    /// One conversation for all clients.
    pub(crate) fn shared(self) -> Self {
        Self { text: self.text + "shared = true\n" }
    }

    /// Another line of the configuration.
    pub(crate) fn with(self, line: &str) -> Self {
        Self { text: format!("{}{line}\n", self.text) }
    }
}

/// A word that no other test has in its command lines.
pub(crate) fn tag() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("hostile-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A gateway that listens.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) log: Arc<Mutex<Vec<String>>>,
    pub(super) tag: String,
    pub(super) process: Child,
    #[allow(dead_code, reason = "held as long as the gateway; read where that is started again")]
    pub(super) folder: TempDir,
}

impl Gateway {
    /// Starts `seawall serve` with these servers; `$TAG` in their lines is a word to find their
    /// processes by.
    pub(crate) async fn serve(servers: &[Entry]) -> Self {
        Self::serve_with("", servers).await
    }

    /// The same, with more lines at the top of the configuration.
    pub(crate) async fn serve_with(settings: &str, servers: &[Entry]) -> Self {
        let mut gateway = Self::silent(settings, servers).await;
        let lines = BufReader::new(gateway.process.stderr.take().unwrap()).lines();
        gateway.listen_to(lines).await;
        gateway
    }

    /// The same on another address.
    #[allow(dead_code, reason = "needed where callers are known")]
    pub(crate) async fn on(listen: &str, settings: &str, servers: &[Entry]) -> Self {
        let mut gateway = Self::listening(listen, None, settings, servers).await;
        let lines = BufReader::new(gateway.process.stderr.take().unwrap()).lines();
        gateway.listen_to(lines).await;
        gateway.address.set_ip([127, 0, 0, 1].into());
        gateway
    }

    /// The address in the first line of its log that has this word.
    #[allow(dead_code, reason = "needed where it listens twice")]
    pub(crate) async fn address_said(&self, word: &str) -> SocketAddr {
        let log = Arc::clone(&self.log);
        let find = || {
            let lines = log.lock().unwrap();
            lines.iter().find(|line| line.contains(word)).and_then(|line| address(line))
        };
        until(20, word, async || find().is_some()).await;
        find().unwrap()
    }

    /// The same, but nobody reads its stderr any more once it listens.
    pub(crate) async fn unheard(servers: &[Entry]) -> (Self, impl Sized) {
        let mut gateway = Self::silent("", servers).await;
        let mut lines = BufReader::with_capacity(1, gateway.process.stderr.take().unwrap()).lines();
        let line = within(20, "the gateway listens", lines.next_line()).await.unwrap().unwrap();
        gateway.address = address(&line).unwrap();
        (gateway, lines)
    }

    /// The same, with so few descriptors to begin with.
    pub(crate) async fn serve_limited(descriptors: u32, servers: &[Entry]) -> Self {
        let mut gateway = Self::started(Some(descriptors), "", servers).await;
        let lines = BufReader::new(gateway.process.stderr.take().unwrap()).lines();
        gateway.listen_to(lines).await;
        gateway
    }

    async fn silent(settings: &str, servers: &[Entry]) -> Self {
        Self::started(None, settings, servers).await
    }

    async fn started(descriptors: Option<u32>, settings: &str, servers: &[Entry]) -> Self {
        Self::listening("127.0.0.1:0", descriptors, settings, servers).await
    }

    async fn listening(
        listen: &str,
        descriptors: Option<u32>,
        settings: &str,
        servers: &[Entry],
    ) -> Self {
        let (folder, tag) = (TempDir::new().unwrap(), tag());
        let file = folder.path().join("seawall.toml");
        let servers: String =
            servers.iter().map(|entry| entry.text.replace("$TAG", &tag)).collect();
        fs::write(&file, format!("listen = {listen:?}\ngrace = \"1s\"\n{settings}\n{servers}"))
            .unwrap();
        let mut command = match descriptors {
            Some(limit) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -S -n {limit}; exec \"$@\""), "sh", SEAWALL]);
                shell
            }
            None => Command::new(SEAWALL),
        };
        command.args(["serve", "--no-catalog-cache", "--config"]).arg(&file);
        let process =
            command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        Self { address: ([127, 0, 0, 1], 0).into(), log: Arc::default(), tag, process, folder }
    }

    pub(super) async fn listen_to(
        &mut self,
        mut lines: tokio::io::Lines<BufReader<tokio::process::ChildStderr>>,
    ) {
        let log = Arc::clone(&self.log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                log.lock().unwrap().push(line);
            }
        });
        let log = Arc::clone(&self.log);
        let found = || log.lock().unwrap().iter().find_map(|line| address(line));
        until(20, "the gateway listens", async || found().is_some()).await;
        self.address = found().unwrap();
    }

    /// The word in the command lines of its children.
    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id().expect("the gateway runs")
    }

    /// Whether a line of its log contains this.
    pub(crate) fn said(&self, text: &str) -> bool {
        self.log.lock().unwrap().iter().any(|line| line.contains(text))
    }

    /// Begins to watch its memory.
    pub(crate) fn memory(&self) -> Memory {
        Memory::of(self.pid())
    }

    /// Asks it to go, and makes sure that it and everything it started is gone.
    pub(crate) async fn stop(mut self) {
        let pid = Pid::from_raw(self.pid().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let exit = within(15, "the gateway ends", self.process.wait()).await.unwrap();
        assert!(exit.success(), "{exit}");
        // They were killed before it went; the system takes a moment to clear them away.
        until(2, "no process is left behind", async || processes(&self.tag).is_empty()).await;
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Only when a test fails is there anything left to end here.
        end_all(&self.tag);
    }
}

/// Ends every process with this word in its command line.
pub(crate) fn end_all(tag: &str) {
    for pid in processes(tag).into_iter().filter_map(Pid::from_raw) {
        let _gone = kill_process(pid, Signal::KILL);
    }
}

fn address(line: &str) -> Option<SocketAddr> {
    line.split("http://").nth(1)?.split('/').next()?.parse().ok()
}

/// The processes with this word in their command line.
pub(crate) fn processes(tag: &str) -> Vec<i32> {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_it = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).split('\0').any(|word| word == tag)
    };
    pids.filter(is_it).collect()
}

/// How much memory a process has come to use since the watching began.
pub(crate) struct Memory {
    pid: u32,
    before: u64,
}

impl Memory {
    pub(crate) fn of(pid: u32) -> Self {
        fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
        Self { pid, before: field(pid, "VmRSS:") }
    }

    /// Fails if the peak since the beginning is this many bytes above it.
    pub(crate) fn grew_at_most(&self, bytes: u64) {
        let grew = field(self.pid, "VmHWM:").saturating_sub(self.before) * 1024;
        assert!(
            grew <= bytes,
            "the gateway grew by {} KiB, {} KiB are allowed",
            grew >> 10,
            bytes >> 10
        );
    }
}

fn field(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The scripted server's program: built with the workspace, or now, if only this test was asked
/// for.
pub(crate) fn scripted() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = Path::new(SEAWALL).with_file_name("seawall-scripted");
        if newest(&testkit())
            .is_none_or(|source| modified(&path).is_none_or(|built| built < source))
        {
            build(&path);
        }
        path.to_str().unwrap().to_owned()
    })
}

fn testkit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/src")
}

fn build(path: &Path) {
    let profile = path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap();
    let profile = if profile == "debug" { "dev" } else { profile };
    let target = path.parent().and_then(Path::parent).unwrap();
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--quiet",
        "--offline",
        "--package",
        "seawall-testkit",
        "--bin",
        "seawall-scripted",
    ]);
    cargo
        .args(["--profile", profile, "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(cargo.status().unwrap().success(), "the scripted server does not build");
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

fn newest(folder: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter_map(|path| if path.is_dir() { newest(&path) } else { modified(&path) }).max()
}
