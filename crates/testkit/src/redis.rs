//! Redis itself, on a port of its own: it can be frozen, killed, wiped and started again with what
//! it had on its disk. Where it is not installed, what needs it is left out and counted, or fails
//! in CI.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::freeze;

/// The password of every Redis here.
pub const PASSWORD: &str = "fleet-password-for-tests";

/// How long it may take until it is ready; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many tests went without it.
static LEFT_OUT: AtomicUsize = AtomicUsize::new(0);

/// The program. `None`: it is not installed; a line on stderr has said what is left out. With
/// `SEAWALL_CI=1` that is an error.
fn program() -> io::Result<Option<PathBuf>> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&paths).map(|folder| folder.join("redis-server"));
    if let Some(found) = places.into_iter().find(|place| place.is_file()) {
        return Ok(Some(found));
    }
    let lack = "redis-server is not installed (Debian: apt-get install redis-server)";
    if std::env::var("SEAWALL_CI").is_ok_and(|is| is == "1") {
        return Err(io::Error::new(io::ErrorKind::NotFound, lack));
    }
    let count = LEFT_OUT.fetch_add(1, Ordering::Relaxed) + 1;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    writeln!(io::stderr(), "left out ({count} in this program): {test}; {lack}")?;
    Ok(None)
}

/// One Redis on the loopback, which ends with its owner.
pub struct RedisServer {
    program: PathBuf,
    folder: PathBuf,
    child: Child,
    address: SocketAddr,
}

impl RedisServer {
    /// Starts it with an append-only file in `folder`. `None`: it is not installed.
    pub async fn start(folder: impl Into<PathBuf>) -> io::Result<Option<Self>> {
        let Some(program) = program()? else { return Ok(None) };
        let folder = folder.into();
        let free = TcpListener::bind(("127.0.0.1", 0)).await?.local_addr()?;
        let child = spawn(&program, &folder, free)?;
        let mut server = Self { program, folder, child, address: free };
        server.wait().await?;
        Ok(Some(server))
    }

    /// Its address for a configuration, password included.
    pub fn url(&self) -> String {
        format!("redis://:{PASSWORD}@{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills it; its port refuses when this returns.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Starts it again where it was, with what its disk has.
    pub async fn restart(&mut self) -> io::Result<()> {
        self.child = spawn(&self.program, &self.folder, self.address)?;
        self.wait().await
    }

    /// Stops it where it is: connections are taken by the kernel and nobody answers.
    pub fn freeze(&self) -> io::Result<()> {
        freeze::freeze(&self.child)
    }

    /// Lets it go on.
    pub fn thaw(&self) -> io::Result<()> {
        freeze::thaw(&self.child)
    }

    /// Deletes everything in it.
    pub async fn wipe(&self) -> io::Result<()> {
        self.command(&["FLUSHALL"]).await.map(drop)
    }

    /// The answer to a command, every line of it; an error of Redis is an error here.
    pub async fn command(&self, words: &[&str]) -> io::Result<Vec<String>> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.raw(&words).await
    }

    /// As [`Self::command`], with words that are not text.
    pub async fn raw(&self, words: &[&[u8]]) -> io::Result<Vec<String>> {
        let mut stream = BufReader::new(TcpStream::connect(self.address).await?);
        for command in [&[b"AUTH".as_slice(), PASSWORD.as_bytes()][..], words] {
            let mut text = format!("*{}\r\n", command.len()).into_bytes();
            for word in command {
                text.extend(format!("${}\r\n", word.len()).into_bytes());
                text.extend_from_slice(word);
                text.extend_from_slice(b"\r\n");
            }
            stream.write_all(&text).await?;
        }
        reply(&mut stream).await?;
        reply(&mut stream).await
    }

    async fn wait(&mut self) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("redis-server ended at its start: {status}")));
            }
            let asked = timeout(Duration::from_secs(1), self.command(&["PING"])).await;
            match asked.map_err(io::Error::from).flatten() {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

fn spawn(program: &PathBuf, folder: &PathBuf, address: SocketAddr) -> io::Result<Child> {
    let mut command = Command::new(program);
    command
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
        .args(["--appendfsync", "always", "--requirepass", PASSWORD])
        .args(["--port", &address.port().to_string()])
        .arg("--dir")
        .arg(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true).spawn()
}

/// The lines of one reply; the elements of an array one after the other.
async fn reply(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<String>> {
    let (mut found, mut left) = (Vec::new(), 1_usize);
    while left > 0 {
        left -= 1;
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end().split_at_checked(1).unwrap_or_default();
        match kind {
            "-" => return Err(io::Error::other(rest.to_owned())),
            "*" => left += rest.parse().unwrap_or(0),
            "$" => {
                let Ok(length) = rest.parse::<usize>() else { continue };
                let mut bytes = vec![0; length + 2];
                stream.read_exact(&mut bytes).await?;
                found.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
            }
            _ => found.push(rest.to_owned()),
        }
    }
    Ok(found)
}
