//! Finds the process that holds a port or a file, as far as this user can see it. Reads only
//! `/proc`; without `/proc` it finds none.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The most processes that are examined, and the most files of each.
const LOOKED_AT: usize = 20_000;

/// A process that holds a port or a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PortHolder {
    pid: u32,
    /// The name of the process's program, if this user may see it.
    program: String,
}

impl PortHolder {
    /// Whether the process runs the same program as this one.
    pub(crate) fn is_ours(&self) -> bool {
        self.program == own_program()
    }

    /// Program and pid, in words.
    pub(crate) fn words(&self) -> String {
        format!("{} (process {})", self.program, self.pid)
    }
}

/// The name of this process's program.
fn own_program() -> String {
    program(std::process::id())
}

/// The name of a process's program, without the ` (deleted)` that Linux adds once the file was
/// replaced.
fn program(pid: u32) -> String {
    let path = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.strip_suffix(" (deleted)").map(str::to_owned).unwrap_or(name)
}

/// The process that listens on an address.
pub(crate) fn of_port(address: SocketAddr) -> Option<PortHolder> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<String> = tables
        .iter()
        .flat_map(|table| table.lines())
        .filter_map(|line| listening(line, address))
        .collect();
    holding(|link| sockets.iter().any(|socket| link == Path::new(socket)))
}

/// The socket in a line of the table, if it listens on this address.
fn listening(line: &str, address: SocketAddr) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
    let (ip, port) = local.split_once(':')?;
    let is_everywhere = |ip: &str| ip.bytes().all(|digit| digit == b'0');
    // `ends_with` also finds an IPv4 address that the IPv6 table lists as mapped.
    let is_there =
        is_everywhere(ip) || address.ip().is_unspecified() || ip.ends_with(&in_table(address.ip()));
    let is_meant =
        *state == "0A" && u16::from_str_radix(port, 16) == Ok(address.port()) && is_there;
    is_meant.then(|| format!("socket:[{inode}]"))
}

/// An address as the table writes it: words of four bytes, each in this machine's byte order.
fn in_table(ip: IpAddr) -> String {
    let bytes = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let word =
        |four: &[u8]| four.try_into().map(u32::from_ne_bytes).map(|word| format!("{word:08X}"));
    bytes.chunks(4).filter_map(|four| word(four).ok()).collect()
}

/// Whether a file is locked, and the process that holds it, if it can be seen.
pub(crate) fn of_lock(path: &Path) -> Option<Option<PortHolder>> {
    let (path, file) = (path.canonicalize().ok()?, fs::metadata(path).ok()?);
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let name = format!("{major:02x}:{minor:02x}:{}", file.ino());
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let is_locked = locks.lines().any(|line| line.split_whitespace().any(|word| word == name));
    is_locked.then(|| holding(|link| link == path))
}

/// The first other process with an open file that `is_meant` accepts.
fn holding(is_meant: impl Fn(&Path) -> bool) -> Option<PortHolder> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().take(LOOKED_AT);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_it = |pid: &u32| {
        let files =
            fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().take(LOOKED_AT);
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|link| is_meant(&link))
    };
    let pid = pids.filter(|pid| *pid != std::process::id()).find(has_it)?;
    Some(PortHolder { pid, program: program(pid) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_the_table_of_the_system() {
        let line = |local: &str, state: &str| {
            format!("   0: {local} 00000000:0000 {state} 0:0 0:0 0 0 0 561 1 x")
        };
        let v6 = "00000000000000000000000001000000";
        for (local, state, address, is_there) in [
            ("0100007F:1CA4", "0A", "127.0.0.1:7332", true),
            ("0100007F:1CA4", "01", "127.0.0.1:7332", false),
            ("0100007F:1CA5", "0A", "127.0.0.1:7332", false),
            ("0200007F:1CA4", "0A", "127.0.0.1:7332", false),
            ("00000000:1CA4", "0A", "127.0.0.1:7332", true),
            ("0200007F:1CA4", "0A", "0.0.0.0:7332", true),
            ("0000000000000000FFFF00000100007F:1CA4", "0A", "127.0.0.1:7332", true),
            (&format!("{v6}:1CA4"), "0A", "[::1]:7332", true),
        ] {
            let found = listening(&line(local, state), address.parse().unwrap());
            assert_eq!(found.is_some(), is_there, "{local} {state} {address}");
            assert!(found.is_none_or(|socket| socket == "socket:[561]"));
        }
    }
}
