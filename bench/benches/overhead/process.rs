//! A process that is measured: started, waited for until it can be talked to, watched, and stopped
//! with us.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use seawall_bench::Setup;

/// How long a process may take until it can be talked to.
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(20);

/// A process, stopped when dropped.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts a program that nobody listens to.
    pub(crate) fn quiet(command: &mut Command) -> Setup<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child: command.spawn()? })
    }

    /// Starts a program that says its address on stdout; it ends when we do.
    pub(crate) fn saying(command: &mut Command) -> Setup<(Self, SocketAddr)> {
        let mut process = Self {
            child: command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?,
        };
        let address = address(process.child.stdout.take())?;
        Ok((process, address))
    }

    /// The same for one that says it on stderr.
    pub(crate) fn logging(command: &mut Command) -> Setup<(Self, SocketAddr)> {
        let mut process = Self {
            child: command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()?,
        };
        let address = address(process.child.stderr.take())?;
        Ok((process, address))
    }

    /// Waits until something listens.
    pub(crate) fn reached(&mut self, address: SocketAddr) -> Setup<()> {
        for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
            if TcpStream::connect(address).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("it ended at once ({status})").into());
            }
            pause(STEP);
        }
        Err("it does not listen".into())
    }

    /// CPU time so far, of all its threads, in seconds.
    pub(crate) fn cpu(&self) -> Option<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // After the name, which may hold anything: the state is field 3, utime 14, stime 15, in
        // ticks of 10 ms.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        let ticks = fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?;
        Some(ticks / 100.0)
    }

    /// Resident memory, in MiB.
    pub(crate) fn memory(&self) -> Option<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? / 1024.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _over_already = self.child.kill();
        let _over = self.child.wait();
    }
}

/// A port that is free now, for programs that cannot choose one.
pub(crate) fn free_port() -> Setup<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Lets other processes settle.
#[expect(clippy::disallowed_methods, reason = "other processes take real time")]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}

/// The address in the first line; whatever follows is thrown away, so that nobody waits for us to
/// read it.
fn address(from: Option<impl Read + Send + 'static>) -> Setup<SocketAddr> {
    let mut from = BufReader::new(from.ok_or("it cannot be heard")?);
    let mut line = String::new();
    from.read_line(&mut line)?;
    thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()));
    let rest =
        line.split_once("http://").ok_or_else(|| format!("it says no address but: {line}"))?.1;
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.' && letter != ':');
    Ok(rest[..end.unwrap_or(rest.len())].parse()?)
}
