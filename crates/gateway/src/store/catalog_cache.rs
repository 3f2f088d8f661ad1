//! Decides which handshake and lists of a server are kept for the time when the server is away.
//!
//! A server's answers may depend on its client's capabilities, so they are kept for each kind of
//! client, and once more for all kinds, so that a client of a new kind is not without tools. They
//! are kept in memory, and in one small file per server and kind of client if there is a folder.
//! Files hold the server's answers and nothing about how it is reached; file names are hashes.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio_util::task::TaskTracker;

use crate::protocol::limits;
use crate::protocol::names::Era;
use crate::protocol::server_info::ServerInfo;

/// Files that are kept; the oldest are removed.
const FILES: usize = 500;
/// Entries in memory at a time: one per server and kind of client.
const KEPT: usize = 64;
/// The largest file that is read.
const FILE_BYTES: u64 = 32 << 20;

/// The cached catalogs of all servers.
#[derive(Debug, Default)]
pub(crate) struct CatalogCache {
    folder: Option<PathBuf>,
    known: Mutex<HashMap<String, KnownCatalog>>,
    changes: AtomicU64,
    /// The number of the change that each file holds: an older change must not overwrite it.
    written: Arc<Mutex<HashMap<String, u64>>>,
    /// Files that are being written.
    writing: TaskTracker,
}

/// The cached catalog of one server, for one kind of client.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct KnownCatalog {
    info: Option<KnownServerInfo>,
    lists: BTreeMap<String, Box<RawValue>>,
}

impl KnownCatalog {
    /// Keeps a list, or a page of it; returns whether it is new. A new list removes the pages of
    /// the old one.
    fn keep(&mut self, name: &str, list: &RawValue) -> bool {
        if self.lists.get(name).is_some_and(|old| old.get() == list.get()) {
            return false;
        }
        let pages = format!("{name} ");
        self.lists.retain(|known, _| !known.starts_with(&pages));
        if self.lists.len() < limits::LISTS_KEPT || self.lists.contains_key(name) {
            self.lists.insert(name.to_owned(), list.to_owned());
        }
        true
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct KnownServerInfo {
    is_modern: bool,
    version: String,
    result: Box<RawValue>,
}

impl CatalogCache {
    /// A cache that lasts in `folder`, or without one only as long as the process.
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        if let Some(folder) = &folder {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            if let Err(error) = made {
                crate::runtime::log::warn(&format!(
                    "nothing is remembered: {}: {error}",
                    folder.display()
                ));
                return Self::default();
            }
            sweep(folder);
        }
        Self { folder, ..Self::default() }
    }

    /// The default folder: below `$XDG_STATE_HOME`, or `~/.local/state`.
    pub(crate) fn default_folder(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
        let state = env("XDG_STATE_HOME").filter(|path| path.starts_with('/')).map(PathBuf::from);
        let home = || env("HOME").map(|home| Path::new(&home).join(".local/state"));
        Some(state.or_else(home)?.join("seawall/catalog"))
    }

    /// The folder of session records, if state is kept on disk.
    pub(crate) fn sessions(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.with_file_name("sessions"))
    }

    /// The folder of the write journal, if state is kept on disk.
    pub(crate) fn journal(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.with_file_name("journal"))
    }

    /// Locks the entries, with the one under `key` read from its file the first time.
    fn known(&self, key: &str) -> MutexGuard<'_, HashMap<String, KnownCatalog>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(key) {
            // A client can declare any capabilities, and each set gets an entry, so entries are
            // bounded. An evicted entry is read from its file again.
            if known.len() >= KEPT
                && let Some(other) = known.keys().next().cloned()
            {
                known.remove(&other);
            }
            let read =
                self.folder.as_ref().and_then(|folder| read(&folder.join(format!("{key}.json"))));
            known.insert(key.to_owned(), read.unwrap_or_default());
        }
        known
    }

    /// The last handshake with a client of any kind.
    pub(crate) fn server_info_of_any(&self, key: &str) -> Option<ServerInfo> {
        self.info(&of_any(key))
    }

    /// A list as a client of any kind read it last.
    pub(crate) fn list_of_any(&self, key: &str, name: &str) -> Option<Bytes> {
        self.list(&of_any(key), name)
    }

    /// The pages of a list as a client of any kind read them last, each with its cursor; the cursor
    /// of the first is empty.
    pub(crate) fn pages_of_any(&self, key: &str, list: &str) -> Vec<(String, Bytes)> {
        let key = of_any(key);
        let known = self.known(&key);
        let Some(known) = known.get(&key) else { return Vec::new() };
        let cursor = |name: &str| match name.strip_prefix(list)? {
            "" => Some(String::new()),
            rest => rest.strip_prefix(' ').map(str::to_owned),
        };
        let pages = known.lists.iter().filter_map(|(name, page)| Some((cursor(name)?, page)));
        pages
            .map(|(cursor, page)| (cursor, Bytes::copy_from_slice(page.get().as_bytes())))
            .collect()
    }

    /// The last handshake.
    pub(crate) fn info(&self, key: &str) -> Option<ServerInfo> {
        let known = self.known(key);
        let info = known.get(key)?.info.as_ref()?;
        let era = if info.is_modern { Era::Modern } else { Era::Legacy };
        let result = Bytes::copy_from_slice(info.result.get().as_bytes());
        Some(ServerInfo { era, version: info.version.clone(), result })
    }

    /// The last list.
    pub(crate) fn list(&self, key: &str, name: &str) -> Option<Bytes> {
        let known = self.known(key);
        known.get(key)?.lists.get(name).map(|list| Bytes::copy_from_slice(list.get().as_bytes()))
    }

    /// Caches a handshake.
    pub(crate) fn keep_server_info(&self, key: &str, info: &ServerInfo) {
        let Some(result) = raw(&info.result) else { return };
        let info = KnownServerInfo {
            is_modern: info.era == Era::Modern,
            version: info.version.clone(),
            result,
        };
        for key in [key, &of_any(key)] {
            self.change(key, |known| {
                let is_new =
                    known.info.as_ref().is_none_or(|old| old.result.get() != info.result.get());
                known.info = Some(info.clone());
                is_new
            });
        }
    }

    /// Caches a list, or a page of it.
    pub(crate) fn keep_list(&self, key: &str, name: &str, list: &[u8]) {
        let Some(list) = raw(list) else { return };
        for key in [key, &of_any(key)] {
            self.change(key, |known| known.keep(name, &list));
        }
    }

    /// Waits until all changes are written.
    pub(crate) async fn flush(&self) {
        self.writing.close();
        self.writing.wait().await;
        self.writing.reopen();
    }

    fn change(&self, key: &str, change: impl FnOnce(&mut KnownCatalog) -> bool) {
        let mut known = self.known(key);
        let Some(entry) = known.get_mut(key) else { return };
        if !change(entry) {
            return;
        }
        if let (Some(folder), Ok(text)) = (&self.folder, serde_json::to_vec(entry)) {
            let (folder, path) = (folder.clone(), folder.join(format!("{key}.json")));
            // Numbered under the lock of `known`, so numbers follow the order of changes; the
            // blocking tasks below may run in any order.
            let change = self.changes.fetch_add(1, Ordering::Relaxed);
            let (written, key) = (Arc::clone(&self.written), key.to_owned());
            // Off the path of a call. A file that could not be written only makes the next start
            // slower.
            self.writing.spawn_blocking(move || {
                let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
                if written.get(&key).is_none_or(|newest| *newest < change)
                    && write(&path, &text).is_ok()
                {
                    if written.insert(key, change).is_none() {
                        sweep(&folder);
                    }
                    // The map is bounded like the folder. Without its numbers a late task could
                    // write an older list, until the next change.
                    if written.len() > FILES {
                        written.clear();
                    }
                }
            });
        }
    }
}

/// The key of the entry for all kinds of clients: the server's part of a key.
fn of_any(key: &str) -> String {
    format!("{}-any", key.split('-').next().unwrap_or_default())
}

/// The last `tools/list` or other list of the server with this name, for any kind of client: its
/// cached pages. Reads only.
pub(crate) fn last_list(folder: &Path, server: &str, list: &str) -> Option<Vec<Bytes>> {
    let is_its = |name: &str| {
        name.strip_prefix(server)
            .is_some_and(|rest| rest.starts_with('-') && rest.ends_with(".json"))
    };
    let entries = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter(|entry| is_its(&entry.file_name().to_string_lossy()));
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    let pages = |known: KnownCatalog| {
        let is_page = |name: &str| {
            name.strip_prefix(list).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let pages = known.lists.into_iter().filter(|(name, _)| is_page(name));
        pages.map(|(_, page)| Bytes::copy_from_slice(page.get().as_bytes())).collect::<Vec<_>>()
    };
    files.iter().rev().filter_map(|(_, path)| read(path)).map(pages).find(|pages| !pages.is_empty())
}

fn raw(json: &[u8]) -> Option<Box<RawValue>> {
    RawValue::from_string(String::from_utf8(json.to_vec()).ok()?).ok()
}

fn read(path: &Path) -> Option<KnownCatalog> {
    let is_small = path.metadata().ok()?.len() <= FILE_BYTES;
    serde_json::from_slice(&std::fs::read(path).ok().filter(|_| is_small)?).ok()
}

/// Writes a file whole or not at all: to a draft, which is then renamed.
fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let draft = path.with_extension(format!("{}.draft", crate::runtime::random::secret()));
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(text)?;
    std::fs::rename(&draft, path)
}

/// Removes the oldest files beyond the limit, unfinished drafts among them.
fn sweep(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    let surplus = files.len().saturating_sub(FILES);
    for (place, (_, path)) in files.iter().enumerate() {
        if place < surplus {
            let _gone = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::hash::key;

    fn info(result: &'static str) -> ServerInfo {
        ServerInfo { era: Era::Legacy, version: "2025-11-25".to_owned(), result: result.into() }
    }

    #[tokio::test]
    async fn what_was_said_is_there_after_a_restart_byte_for_byte() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("catalog");
        let catalog_cache = CatalogCache::new(Some(path.clone()));
        let name = key(&[b"server", b"client"]);
        assert!(catalog_cache.info(&name).is_none());
        catalog_cache.keep_server_info(&name, &info(r#"{ "b":1.0, "a":[] }"#));
        catalog_cache.keep_list(&name, "tools/list", br#"{"tools": [{"name":"x"} ]}"#);
        let file = path.join(format!("{name}.json"));
        catalog_cache.flush().await;
        let again = CatalogCache::new(Some(path));
        assert_eq!(again.info(&name).unwrap().result, r#"{ "b":1.0, "a":[] }"#);
        assert_eq!(again.list(&name, "tools/list").unwrap(), r#"{"tools": [{"name":"x"} ]}"#);
        let other = format!("{name}-other");
        assert!(again.list(&other, "tools/list").is_none() && again.info(&other).is_none());
        assert_eq!(
            again.list_of_any(&other, "tools/list").unwrap(),
            r#"{"tools": [{"name":"x"} ]}"#
        );
        assert_eq!(again.server_info_of_any(&other).unwrap().result, r#"{ "b":1.0, "a":[] }"#);
        assert!(again.list_of_any(&key(&[b"another"]), "tools/list").is_none());
        std::fs::write(&file, "garbage").unwrap();
        assert!(
            CatalogCache::new(file.parent().map(Path::to_path_buf)).info(&name).is_none(),
            "a broken file is no memory"
        );
    }

    #[tokio::test]
    async fn clients_that_say_something_else_each_time_fill_no_memory() {
        let folder = tempfile::TempDir::new().unwrap();
        let catalog_cache = CatalogCache::new(Some(folder.path().to_path_buf()));
        for client in 0..FILES + 100 {
            catalog_cache.keep_server_info(&key(&[&client.to_le_bytes()]), &info("{}"));
        }
        assert!(catalog_cache.known.lock().unwrap().len() <= KEPT);
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        catalog_cache.flush().await;
        assert_eq!(files(), FILES);
    }

    #[tokio::test]
    async fn a_list_takes_the_pages_of_the_one_before_with_it_and_pages_are_bounded() {
        let catalog_cache = CatalogCache::default();
        catalog_cache.keep_list("s-c", "tools/list", b"[1]");
        catalog_cache.keep_list("s-c", "tools/list a", b"[2]");
        catalog_cache.keep_list("s-c", "tools/list", b"[1]");
        assert!(catalog_cache.list("s-c", "tools/list a").is_some(), "it is still the same list");
        catalog_cache.keep_list("s-c", "tools/list", b"[3]");
        assert!(catalog_cache.list("s-c", "tools/list a").is_none());
        for page in 0..1_000 {
            catalog_cache.keep_list("s-c", &format!("tools/list {page}"), b"[]");
        }
        assert_eq!(catalog_cache.known("s-c")["s-c"].lists.len(), limits::LISTS_KEPT);
    }
}
