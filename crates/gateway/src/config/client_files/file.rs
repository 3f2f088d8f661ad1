//! Decides how a client's file is read and written: as a whole or not at all, and never without one
//! copy of its state before Seawall.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The largest file that is read: some clients keep more than their settings in it.
const LONGEST: u64 = 16 << 20;
const MARK: &str = "\u{feff}";

/// A client's file, as it was read.
#[derive(Debug)]
pub(crate) struct ClientFile {
    /// The resolved path of the file: a symbolic link to it stays a link.
    path: PathBuf,
    whole: String,
}

impl ClientFile {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let unreadable = |error: io::Error| format!("cannot be read: {error}");
        let path = path.canonicalize().map_err(unreadable)?;
        let mut whole = String::new();
        let file = File::open(&path).map_err(unreadable)?;
        file.take(LONGEST + 1).read_to_string(&mut whole).map_err(unreadable)?;
        if whole.len() as u64 > LONGEST {
            return Err("is longer than 16 MiB".to_owned());
        }
        Ok(Self { path, whole })
    }

    /// The text, without a byte order mark.
    pub(crate) fn text(&self) -> &str {
        self.whole.strip_prefix(MARK).unwrap_or(&self.whole)
    }

    /// Replaces the text, unless another program has changed the file since it was read. Returns
    /// the path of the copy: a new one of the current text if Seawall is not in it
    /// (`is_untouched`), else the copy made before Seawall was installed.
    pub(crate) fn replace(&self, text: &str, is_untouched: bool) -> Result<PathBuf, String> {
        let unwritable =
            |error: io::Error| format!("cannot be written: {error}; nothing is changed");
        let mark = if self.whole.starts_with(MARK) { MARK } else { "" };
        let mode = fs::metadata(&self.path).map_err(unwritable)?.permissions();
        let copy = self.beside("before-seawall");
        let is_kept = !is_untouched && copy.is_file();
        let fresh = self.beside(&format!("seawall-{}", std::process::id()));
        let put = |text: &str, place: &Path| {
            write_new(&fresh, text, &mode)?;
            // Compared as late as possible: a change between this and the rename would still be
            // lost.
            let is_same = Self::read(&self.path).is_ok_and(|now| now.whole == self.whole);
            is_same
                .then_some(())
                .ok_or_else(|| io::Error::other("somebody else has just changed it"))?;
            fs::rename(&fresh, place)
        };
        let copied = if is_kept { Ok(()) } else { put(&self.whole, &copy) };
        let written = copied.and_then(|()| put(&format!("{mark}{text}"), &self.path));
        written.map(|()| copy).map_err(|error| {
            let _gone = fs::remove_file(&fresh);
            unwritable(error)
        })
    }

    fn beside(&self, end: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(end);
        self.path.with_file_name(name)
    }
}

/// Writes and syncs a file that did not exist. It starts private and then gets the permissions of
/// the original, so that it is never readable for more users than the original.
fn write_new(path: &Path, text: &str, mode: &fs::Permissions) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.set_permissions(mode.clone()));
    written.and_then(|()| file.sync_all()).inspect_err(|_| {
        let _gone = fs::remove_file(path);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_wrote_meanwhile_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        fs::write(&path, "\u{feff}{}").unwrap();
        let current = ClientFile::read(&path).unwrap();
        assert_eq!(current.text(), "{}");
        fs::write(&path, "theirs").unwrap();
        let why = current.replace("ours", true).unwrap_err();
        assert_eq!(why, "cannot be written: somebody else has just changed it; nothing is changed");
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");

        fs::write(&path, "\u{feff}{}").unwrap();
        current.replace("ours", true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "\u{feff}ours", "a byte order mark stays");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the file, and one copy");

        ClientFile::read(&path).unwrap().replace("more of ours", false).unwrap();
        let copy = folder.path().join("mcp.json.before-seawall");
        assert_eq!(
            fs::read_to_string(&copy).unwrap(),
            "\u{feff}{}",
            "the copy stays what was there before Seawall"
        );
        fs::remove_file(&copy).unwrap();
        ClientFile::read(&path).unwrap().replace("ours again", false).unwrap();
        assert_eq!(
            fs::read_to_string(&copy).unwrap(),
            "\u{feff}more of ours",
            "nothing is written without a copy"
        );
    }
}
