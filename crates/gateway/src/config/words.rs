//! Decides how a command in one string is split into words: some clients accept `"command": "npx -y
//! server"`.

use std::path::Path;

/// The words of a command, if the whole is no program and its first word is one. Programs are
/// searched in `path`.
pub(super) fn of(command: &str, path: &str) -> Option<Vec<String>> {
    if !command.contains(char::is_whitespace) || is_program(command, path) {
        return None;
    }
    split(command).filter(|words| words.first().is_some_and(|program| is_program(program, path)))
}

/// Whether a shell would find a program by this name.
fn is_program(name: &str, path: &str) -> bool {
    if name.contains('/') {
        return is_executable(Path::new(name));
    }
    !name.is_empty() && std::env::split_paths(path).any(|folder| is_executable(&folder.join(name)))
}

#[cfg(unix)]
fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(file: &Path) -> bool {
    file.is_file()
}

/// Splits words as a shell does, with quotes but without expansion. `None` if a quote is left open.
fn split(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (None | Some('"'), '\\') => word.get_or_insert_default().push(letters.next()?),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        for (line, words) in [
            ("npx -y  foo ", Some(vec!["npx", "-y", "foo"])),
            (r#"node "/a b/c.js" --x='y z'"#, Some(vec!["node", "/a b/c.js", "--x=y z"])),
            (r#"a\ b "c\"d" 'e\f' """#, Some(vec!["a b", "c\"d", "e\\f", ""])),
            ("a 'b", None),
            ("a \\", None),
        ] {
            let words = words.map(|words| words.into_iter().map(str::to_owned).collect());
            assert_eq!(split(line), words, "{line}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_what_is_no_program_and_begins_with_one_is_a_line() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        for name in ["npx", "my tool"] {
            let file = folder.path().join(name);
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        let path = folder.path().display().to_string();
        let whole = folder.path().join("my tool").display().to_string();
        assert_eq!(of("npx -y foo", &path), Some(["npx", "-y", "foo"].map(str::to_owned).to_vec()));
        for command in ["npx", "my tool", &whole, "other -y foo", "", " "] {
            assert_eq!(of(command, &path), None, "{command}");
        }
    }
}
