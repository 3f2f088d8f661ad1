//! Decides how a file is read: its longest size, its permissions, and its syntax.

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::problem::Problem;

/// No config, env file or secret is longer; a longer file is a mistake.
pub(super) const LONGEST: usize = 1024 * 1024;

/// A file's text, without a byte order mark.
pub(super) struct ConfigText {
    pub(super) text: String,
    pub(super) others_can_write: bool,
}

/// The syntax of a config file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileFormat {
    Json,
    Toml,
    Yaml,
}

pub(super) fn read(path: &Path) -> Result<ConfigText, Problem> {
    // Behind `/dev/stdin` and a shell's `<(command)` is a pipe that somebody writes to. Any other
    // pipe may have no writer: reading it would never end, and no change be seen again.
    let is_inherited = path.starts_with("/dev") || path.starts_with("/proc");
    let text = if is_inherited { read_bounded(path) } else { read_regular(path) };
    text.map_err(Problem::of_file)
}

/// The file's text, or the problem with it, worded to follow the file's name.
fn read_bounded(path: &Path) -> Result<ConfigText, String> {
    let unreadable = |error| format!("cannot be read: {error}");
    read_file(File::open(path).map_err(unreadable)?)
}

fn read_file(file: File) -> Result<ConfigText, String> {
    let unreadable = |error| format!("cannot be read: {error}");
    // Permissions are read from the open file, not by its name: the file that is checked is the
    // file that is read.
    let others_can_write = others_can_write(&file.metadata().map_err(unreadable)?);
    let mut bytes = Vec::new();
    file.take(LONGEST as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > LONGEST {
        return Err("is longer than 1 MiB".to_owned());
    }
    let mut text =
        String::from_utf8(bytes).map_err(|_| "is not UTF-8 text; save it as UTF-8".to_owned())?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(ConfigText { text, others_can_write })
}

/// Like [`read_bounded`], for regular files only. Opening a pipe would block, and a device has no
/// end.
pub(super) fn read_regular(path: &Path) -> Result<ConfigText, String> {
    let unreadable = |error| format!("cannot be read: {error}");
    let not_regular = || "is not a regular file; name one that is".to_owned();
    // Opened non-blocking, so that a pipe cannot stall the gateway; then the open file's own type
    // is checked.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file: File = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file.into(),
        // A socket.
        Err(Errno::NXIO) => return Err(not_regular()),
        Err(error) => return Err(unreadable(error.into())),
    };
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(not_regular());
    }
    read_file(file)
}

/// The syntax by the file's extension, else by its text.
pub(super) fn format(path: &Path, text: &str) -> FileFormat {
    let extension =
        path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("toml") => FileFormat::Toml,
        Some("json" | "jsonc" | "json5") => FileFormat::Json,
        Some("yaml" | "yml") => FileFormat::Yaml,
        _ if text.trim_start().starts_with(['{', '/']) => FileFormat::Json,
        _ if text.lines().any(|line| line.starts_with("binds:")) => FileFormat::Yaml,
        _ => FileFormat::Toml,
    }
}

#[cfg(unix)]
fn others_can_write(file: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.mode() & 0o022 != 0
}

#[cfg(not(unix))]
fn others_can_write(_: &Metadata) -> bool {
    false
}
