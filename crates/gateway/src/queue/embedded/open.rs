//! Decides how the file of the queue is created, opened and checked, and which error is reported
//! when it cannot be used.
//!
//! A new file is written under another name and gets its own only when it is complete, so a crash
//! in between leaves nothing that looks like a damaged queue. An existing file is read as a whole
//! before anything is added to it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{
    Builder, Database, DatabaseError, Durability, StorageError, TableDefinition, TableError,
    WriteTransaction,
};

/// The file, below the folder of the store.
const FILE: &str = "queue.redb";
/// The version of the record format.
const SCHEMA: u64 = 1;
/// Memory for pages of the file.
const CACHE: usize = 4 << 20;

/// Records by id.
pub(super) const ITEMS: TableDefinition<u64, &[u8]> = TableDefinition::new("items");
/// The schema and the last id that was given.
pub(super) const FACTS: TableDefinition<&str, u64> = TableDefinition::new("facts");
pub(super) const LAST_ID: &str = "last id";
const SCHEMA_FACT: &str = "schema";
const BEAT: &str = "beat";

/// Why the queue cannot be used. Each error names the file and the way out.
#[derive(Debug, thiserror::Error)]
pub enum StoreTrouble {
    /// The folder or the file cannot be created, read or written.
    #[error("the queue in {} cannot be used: {why}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        why: String,
    },
    /// Another process has the file open.
    #[error(
        "the queue in {} is in use by another process; end that one, or give this one another [store] path",
        path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A later version wrote the file.
    #[error(
        "the queue in {} has schema {found}, and this version reads schema 1; run the version that wrote it, or move the file away: {LOST}",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The schema of the file.
        found: u64,
    },
    /// The file is not a queue, or is damaged.
    #[error(
        "the queue in {} is damaged or not a queue ({why}); restore it, or move the file away to start with an empty queue: {LOST}",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage that was found.
        why: String,
    },
    /// The address of Redis cannot be used.
    #[error("the queue in Redis cannot be used: {why}; correct [store] redis")]
    Redis {
        /// What is wrong with it.
        why: String,
    },
}

/// How often a draft is written anew that another process removed.
const SWEPT: usize = 5;

/// The price of moving the file away.
const LOST: &str = "calls that wait in it are then never sent, and their results cannot be read";

/// Opens the file below `folder`; creates folder and file if they are missing.
pub(super) fn database(folder: &Path) -> Result<Database, StoreTrouble> {
    let path = file(folder);
    let io = |error: io::Error| StoreTrouble::Io { path: path.clone(), why: error.to_string() };
    if !path.try_exists().map_err(io)? {
        create(folder, &path)?;
    }
    // The last gateway may have stopped before the file's name was on the disk.
    sync(folder).map_err(io)?;
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Err(StoreTrouble::Damaged { path, why: "it is empty".to_owned() });
    }
    checked(&path, || Builder::new().set_cache_size(CACHE).create_file(file))
}

/// The path of the file.
pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// Opens a database and reads all of it, so that damage shows now and not when an item is due.
pub(super) fn checked(
    path: &Path,
    open: impl FnOnce() -> Result<Database, DatabaseError>,
) -> Result<Database, StoreTrouble> {
    let opened = no_panic(path, || {
        let mut database = open()?;
        database.check_integrity()?;
        Ok(database)
    })?;
    opened.map_err(|error| explain(path, error))
}

/// Turns a panic of the store below into an error: a damaged file must not stop the gateway.
pub(super) fn no_panic<T>(path: &Path, work: impl FnOnce() -> T) -> Result<T, StoreTrouble> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|thrown| {
        let words = thrown.downcast_ref::<String>().map(String::as_str);
        let why =
            words.or_else(|| thrown.downcast_ref::<&str>().copied()).unwrap_or("reading it failed");
        StoreTrouble::Damaged {
            path: path.to_owned(),
            why: why.lines().next().unwrap_or_default().to_owned(),
        }
    })
}

fn explain(path: &Path, error: DatabaseError) -> StoreTrouble {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreTrouble::InUse { path },
        DatabaseError::Storage(StorageError::Io(error)) if !tells_of_damage(&error) => {
            StoreTrouble::Io { path, why: error.to_string() }
        }
        other => StoreTrouble::Damaged { path, why: other.to_string() },
    }
}

/// redb reports a file that ends too early, or holds other data, as a read error.
fn tells_of_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput
    )
}

/// Checks the version of the record format.
pub(super) fn check_schema(path: &Path, write: &WriteTransaction) -> Result<(), StoreTrouble> {
    let damaged = |why: String| StoreTrouble::Damaged { path: path.to_owned(), why };
    let names = write.list_tables().map_err(|error| damaged(error.to_string()))?;
    if !names.into_iter().any(|table| redb::TableHandle::name(&table) == "facts") {
        return Err(damaged("it has no schema".to_owned()));
    }
    let facts = write.open_table(FACTS).map_err(|error: TableError| damaged(error.to_string()))?;
    let schema = redb::ReadableTable::get(&facts, SCHEMA_FACT)
        .map_err(|error| damaged(error.to_string()))?;
    match schema.map(|schema| schema.value()) {
        Some(SCHEMA) => Ok(()),
        Some(found) => Err(StoreTrouble::Newer { path: path.to_owned(), found }),
        None => Err(damaged("it has no schema".to_owned())),
    }
}

/// A transaction that is on the disk when its commit returns.
pub(super) fn transaction(database: &Database) -> Result<WriteTransaction, redb::Error> {
    let mut write = database.begin_write()?;
    write.set_durability(Durability::Immediate)?;
    Ok(write)
}

/// Commits, and then commits a counter of no importance.
///
/// The file holds its last two commits, and redb silently falls back to the older one if the newer
/// is damaged. So both must hold the promised change. A two-phase commit would be as slow, and a
/// single bit would decide between the two.
pub(super) fn commit_twice(
    database: &Database,
    write: WriteTransaction,
) -> Result<(), redb::Error> {
    write.commit()?;
    let again = transaction(database)?;
    {
        let mut facts = again.open_table(FACTS)?;
        let beat = redb::ReadableTable::get(&facts, BEAT)?.map_or(0, |beat| beat.value());
        facts.insert(BEAT, beat.wrapping_add(1))?;
    }
    Ok(again.commit()?)
}

fn create(folder: &Path, path: &Path) -> Result<(), StoreTrouble> {
    let io = |error: io::Error| StoreTrouble::Io { path: path.to_owned(), why: error.to_string() };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
    sweep(folder);
    // Another process that starts now may remove this draft; each process does so once.
    let mut made = draft(folder, path);
    for _ in 0..SWEPT {
        if made.as_ref().is_ok_and(|is_there| !is_there) {
            made = draft(folder, path);
        }
    }
    // The folders above may be new too, and are synced. A folder that cannot be opened was not
    // created here.
    for above in folder.ancestors().skip(1) {
        let _not_ours = sync(above);
    }
    match made? {
        true => Ok(()),
        false => Err(io(io::ErrorKind::NotFound.into())),
    }
}

/// Writes the file under another name and links it to its own when it is complete. Returns whether
/// the file exists then.
fn draft(folder: &Path, path: &Path) -> Result<bool, StoreTrouble> {
    let draft = folder.join(format!("{FILE}.{}.draft", crate::runtime::random::secret()));
    // A hard link, not a rename: it fails if the file exists, so it cannot replace the queue of a
    // process that was faster.
    let linked = fill(&draft, path).map(|()| std::fs::hard_link(&draft, path));
    let _gone = std::fs::remove_file(&draft);
    match linked? {
        Ok(()) => Ok(true),
        // Another process was faster; the queue belongs to the process that opens it first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreTrouble::Io { path: path.to_owned(), why: error.to_string() }),
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn fill(draft: &Path, path: &Path) -> Result<(), StoreTrouble> {
    let io = |why: String| StoreTrouble::Io { path: path.to_owned(), why };
    let open = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(draft);
    let file = open.map_err(|error| io(error.to_string()))?;
    let database = Builder::new()
        .set_cache_size(CACHE)
        .create_file(file)
        .map_err(|error| io(error.to_string()))?;
    initialize(&database).map_err(|error| io(error.to_string()))
}

/// Writes the schema into a new database.
pub(super) fn initialize(database: &Database) -> Result<(), redb::Error> {
    let write = transaction(database)?;
    write.open_table(FACTS)?.insert(SCHEMA_FACT, SCHEMA)?;
    write.open_table(ITEMS)?;
    commit_twice(database, write)
}

/// Removes drafts that were never finished.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(FILE) && name.ends_with(".draft") {
            let _gone = std::fs::remove_file(entry.path());
        }
    }
}
