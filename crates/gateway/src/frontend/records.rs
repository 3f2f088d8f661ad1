//! Decides how sessions are kept on disk, so that a restarted gateway can go on with them.
//!
//! There is one file per session, in a folder per listening address, so that gateways never touch
//! each other's files. A file is written whole under another name and renamed, so that it is
//! readable whenever the gateway is killed. It is not synced: data that the operating system has
//! taken survives the process, and if the system goes down the clients' connections and the servers
//! go with it.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::protocol::limits;
use crate::runtime::random::secret;

/// The largest file that is written or read.
const FILE_BYTES: u64 = 64 << 10;
/// The version of the file format.
const FORM: u32 = 1;

/// The record of one session.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SessionRecord {
    form: u32,
    /// The path that the session was opened on.
    pub path: String,
    /// The session's id among all clients, by which the store finds its queued writes.
    pub owner: String,
    /// The client's identity by the secret it gave; empty if it gave none.
    #[serde(default)]
    pub identity: String,
    /// The params of its `initialize`.
    pub initialize: Box<RawValue>,
    /// The log level that the client set.
    pub log_level: Option<String>,
    /// Resources that the client subscribed to, per server.
    pub subscribed: BTreeMap<String, Vec<String>>,
}

impl SessionRecord {
    pub(super) fn new(path: &str, owner: &str, identity: &str, initialize: Box<RawValue>) -> Self {
        let (path, owner, identity) = (path.to_owned(), owner.to_owned(), identity.to_owned());
        Self {
            form: FORM,
            path,
            owner,
            identity,
            initialize,
            log_level: None,
            subscribed: BTreeMap::new(),
        }
    }
}

/// The session records of one listening address.
#[derive(Debug)]
pub(super) struct SessionRecords {
    folder: PathBuf,
    /// One write at a time, so that the newest record is written last.
    writing: Mutex<()>,
}

impl SessionRecords {
    /// Opens the records of an address below `folder`. Expired records are removed there, for all
    /// addresses.
    pub(super) fn open(folder: &Path, address: SocketAddr, now: SystemTime) -> io::Result<Self> {
        let own = folder.join(place(address));
        DirBuilder::new().recursive(true).mode(0o700).create(&own)?;
        for other in fs::read_dir(folder)?.flatten() {
            sweep(&other.path(), now);
            if other.path() != own {
                let _not_empty = fs::remove_dir(other.path());
            }
        }
        Ok(Self { folder: own, writing: Mutex::default() })
    }

    /// The file of the session with this id. The id itself is written nowhere: it is the key of the
    /// hash that names the file, so that the folder reveals no id. `None` if the text is no session
    /// id.
    fn place(&self, id: &str) -> Option<PathBuf> {
        let key: [u8; 16] =
            u128::from_str_radix(id, 16).ok().filter(|_| id.len() == 32)?.to_be_bytes();
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(b"seawall session");
        Some(self.folder.join(format!("{:032x}.json", hasher.finish128().as_u128())))
    }

    /// Writes the record that `record` returns once it is this session's turn.
    pub(super) fn keep(
        &self,
        id: &str,
        record: impl FnOnce() -> Option<SessionRecord>,
    ) -> io::Result<()> {
        let _in_turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // `record` runs under the lock, so a later write never holds an older state.
        let (Some(place), Some(record)) = (self.place(id), record()) else { return Ok(()) };
        let text = serde_json::to_vec(&record)?;
        if text.len() as u64 > FILE_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the session says more than is kept",
            ));
        }
        // Another gateway may have removed the folder while it was empty.
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let draft = place.with_extension(format!("{}.draft", secret()));
        let written =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).and_then(
                |mut file| {
                    file.write_all(&text)?;
                    fs::rename(&draft, &place)
                },
            );
        written.inspect_err(|_| {
            let _none = fs::remove_file(&draft);
        })
    }

    /// The record of the session with this id, if there is one and it has not expired.
    pub(super) fn find(&self, id: &str, now: SystemTime) -> Option<SessionRecord> {
        let file = File::open(self.place(id)?).ok()?;
        let facts = file.metadata().ok().filter(|facts| facts.is_file() && !is_old(facts, now))?;
        let mut text = Vec::new();
        file.take(FILE_BYTES).read_to_end(&mut text).ok().filter(|_| facts.len() <= FILE_BYTES)?;
        serde_json::from_slice(&text).ok().filter(|record: &SessionRecord| record.form == FORM)
    }

    /// Notes that a session was used.
    pub(super) fn touch(&self, id: &str, now: SystemTime) {
        if let Some(file) =
            self.place(id).and_then(|place| OpenOptions::new().write(true).open(place).ok())
        {
            let _shorter_life = file.set_modified(now);
        }
    }

    /// Removes the record of a session that has ended.
    pub(super) fn forget(&self, id: &str) {
        let _in_turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = self.place(id) {
            let _none = fs::remove_file(place);
        }
    }

    /// Removes expired records.
    pub(super) fn sweep(&self, now: SystemTime) {
        sweep(&self.folder, now);
    }
}

/// The folder name of an address.
pub(super) fn place(address: SocketAddr) -> String {
    address.to_string().replace([':', '[', ']', '%'], "_")
}

fn is_old(file: &fs::Metadata, now: SystemTime) -> bool {
    let age = file.modified().ok().and_then(|used| now.duration_since(used).ok());
    age.unwrap_or(Duration::ZERO) > limits::SESSION_IDLE
}

/// Removes expired files of a folder, unfinished drafts among them, and the oldest beyond the
/// limit.
fn sweep(folder: &Path, now: SystemTime) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        Some((entry.metadata().ok().filter(fs::Metadata::is_file)?, entry.path()))
    });
    let (old, mut files): (Vec<_>, Vec<_>) = files.partition(|(facts, _)| is_old(facts, now));
    files.sort_by_key(|(facts, _)| facts.modified().ok());
    let surplus = files.len().saturating_sub(limits::SESSIONS);
    for (_, path) in old.iter().chain(files.iter().take(surplus)) {
        let _gone = fs::remove_file(path);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files are dated by wall time")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn record(path: &str) -> SessionRecord {
        SessionRecord::new(
            path,
            "me",
            "",
            RawValue::from_string(r#"{ "a":1.0 }"#.to_owned()).unwrap(),
        )
    }

    fn opened(folder: &Path, port: u16) -> SessionRecords {
        SessionRecords::open(folder, ([127, 0, 0, 1], port).into(), SystemTime::now()).unwrap()
    }

    #[test]
    fn a_session_is_found_by_its_id_alone_and_the_id_is_nowhere() {
        let folder = tempfile::TempDir::new().unwrap();
        let (records, now, id) = (opened(folder.path(), 1), SystemTime::now(), secret());
        records.keep(&id, || Some(record("/mcp"))).unwrap();
        let found = records.find(&id, now).unwrap();
        assert_eq!(
            (found.path.as_str(), found.owner.as_str(), found.initialize.get()),
            ("/mcp", "me", r#"{ "a":1.0 }"#)
        );
        for other in [
            secret(),
            String::new(),
            id[1..].to_owned(),
            format!("0{id}"),
            "../../etc/passwd".to_owned(),
        ] {
            assert!(records.find(&other, now).is_none(), "{other}");
        }
        let file = fs::read_dir(&records.folder).unwrap().next().unwrap().unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!file.file_name().to_string_lossy().contains(&id));
        assert!(!fs::read_to_string(file.path()).unwrap().contains(&id));
        assert!(opened(folder.path(), 2).find(&id, now).is_none(), "it is another gateway's");
        records.forget(&id);
        assert!(records.find(&id, now).is_none());
        assert_eq!(fs::read_dir(&records.folder).unwrap().count(), 0);
    }

    #[test]
    fn what_nobody_used_for_long_is_gone() {
        let folder = tempfile::TempDir::new().unwrap();
        let (records, now, id) = (opened(folder.path(), 1), SystemTime::now(), secret());
        records.keep(&id, || Some(record("/mcp"))).unwrap();
        let later = now + limits::SESSION_IDLE + Duration::from_secs(60);
        assert!(records.find(&id, later).is_none());
        records.touch(&id, later);
        assert!(records.find(&id, later).is_some());
        fs::write(records.folder.join("x.draft"), "unfinished").unwrap();
        records.sweep(later + limits::SESSION_IDLE / 2);
        assert_eq!(fs::read_dir(&records.folder).unwrap().count(), 1, "the draft is older");
        // Another gateway removes the records that this one left.
        let much_later = later + 2 * limits::SESSION_IDLE;
        SessionRecords::open(folder.path(), ([127, 0, 0, 1], 2).into(), much_later).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn garbage_is_no_session() {
        let folder = tempfile::TempDir::new().unwrap();
        let (records, now, id) = (opened(folder.path(), 1), SystemTime::now(), secret());
        records.keep(&id, || Some(record("/mcp"))).unwrap();
        let place = records.place(&id).unwrap();
        let whole = fs::read_to_string(&place).unwrap();
        for text in [
            "",
            "garbage",
            "{}",
            &whole[..whole.len() / 2],
            &whole.replace("\"form\":1", "\"form\":2"),
        ] {
            fs::write(&place, text).unwrap();
            assert!(records.find(&id, now).is_none(), "{text}");
        }
        fs::write(&place, format!("{whole}{}", " ".repeat(FILE_BYTES as usize))).unwrap();
        assert!(records.find(&id, now).is_none(), "too large");
        fs::remove_file(&place).unwrap();
        fs::create_dir(&place).unwrap();
        assert!(records.find(&id, now).is_none(), "a folder");
    }
}
