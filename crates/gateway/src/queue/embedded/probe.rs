//! Decides whether a queue could be opened in a folder, without creating, locking or changing
//! anything.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::open::{StoreTrouble, file};

/// The first bytes of a redb database.
const BEGINNING: &[u8] = b"redb\x1a\x0a";

/// The file, if it exists and can be written; `None` if it is missing and can be created.
pub fn probe(folder: &Path) -> Result<Option<PathBuf>, StoreTrouble> {
    let path = file(folder);
    let io = |error: io::Error| StoreTrouble::Io { path: path.clone(), why: error.to_string() };
    let length = match fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return can_be_made(folder).map(|()| None).map_err(io);
        }
        found => found.map_err(io)?.len(),
    };
    // Opening the queue also opens the folder, to sync the name of the file.
    File::open(folder).map_err(io)?;
    let opened = OpenOptions::new().read(true).write(true).open(&path).map_err(io)?;
    let mut beginning = Vec::new();
    opened.take(BEGINNING.len() as u64).read_to_end(&mut beginning).map_err(io)?;
    let why = match length {
        0 => "it is empty",
        _ if beginning != BEGINNING => "it is something else",
        _ => return Ok(Some(path)),
    };
    Err(StoreTrouble::Damaged { path, why: why.to_owned() })
}

/// Whether the folder, or its nearest existing ancestor, takes new files.
fn can_be_made(folder: &Path) -> io::Result<()> {
    let is_there = |path: &&Path| fs::symlink_metadata(path).is_ok();
    let nearest = folder.ancestors().find(is_there).ok_or(ErrorKind::NotFound)?;
    if !fs::metadata(nearest)?.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    Ok(access(nearest, Access::WRITE_OK | Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_judged_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let why = |name: &str| probe(&at(name)).map_err(|trouble| trouble.to_string());
        assert_eq!(why("new/below").unwrap(), None);
        assert!(!at("new").exists(), "nothing is made");
        fs::write(at("file"), "x").unwrap();
        assert!(why("file").unwrap_err().contains("Not a directory"));
        assert!(why("file/below").unwrap_err().contains("Not a directory"));
        for (name, text, words) in
            [("empty", "", "it is empty"), ("other", "SQLite", "it is something else")]
        {
            fs::create_dir(at(name)).unwrap();
            fs::write(file(&at(name)), text).unwrap();
            assert!(why(name).unwrap_err().contains(words), "{name}");
            assert_eq!(fs::read_to_string(file(&at(name))).unwrap(), text);
        }
        fs::create_dir(at("good")).unwrap();
        drop(super::super::open::database(&at("good")).unwrap());
        let before = fs::read(file(&at("good"))).unwrap();
        assert_eq!(why("good").unwrap(), Some(file(&at("good"))));
        assert!(fs::read(file(&at("good"))).unwrap() == before);
    }
}
