//! Decides which names a server may have. The name stands before `__` in the names of its tools,
//! and in paths.

/// The rule in words, for problems.
pub(super) const RULE: &str = "a server's name is 1 to 64 of A-Z a-z 0-9 _ - . with a letter or digit, \
    without \"__\" and without \"_\" at its end";

const LONGEST: usize = 64;

pub(super) fn is_valid(name: &str) -> bool {
    name.len() <= LONGEST
        && name.chars().all(is_plain)
        && name.contains(|c: char| c.is_ascii_alphanumeric())
        && !name.contains("__")
        && !name.ends_with('_')
}

/// The nearest valid name, with `-` in place of invalid characters.
pub(super) fn fit(name: &str) -> Option<String> {
    if is_valid(name) {
        return Some(name.to_owned());
    }
    let plain: String =
        name.chars().map(|c| if is_plain(c) { c } else { '-' }).take(LONGEST).collect();
    let mut fitted = plain.replace("__", "-");
    if fitted.ends_with('_') {
        fitted.pop();
        fitted.push('-');
    }
    is_valid(&fitted).then_some(fitted)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.".contains(c)
}
