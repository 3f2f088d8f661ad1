//! Decides which known key a user may have meant.

/// The nearest of `known`, if `key` may be a misspelling of it.
pub(crate) fn nearest<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let key = plain(key);
    let near = |name: &&'a str| {
        let name_plain = plain(name);
        let bound = name_plain.len().div_ceil(3).min(3);
        let is_near = key.len().abs_diff(name_plain.len()) <= bound;
        is_near.then(|| distance(&key, &name_plain)).filter(|distance| *distance <= bound)
    };
    known.iter().filter_map(|name| Some((near(name)?, *name))).min().map(|(_, name)| name)
}

/// The problem text for an unknown key.
pub(super) fn unknown(key: &str, known: &[&str]) -> String {
    match nearest(key, known) {
        Some(name) => format!("unknown key; did you mean \"{name}\"?"),
        None => format!("unknown key; known are {}", known.join(", ")),
    }
}

/// `allowedHosts` and `allowed-hosts` are `allowed_hosts` in another naming style.
fn plain(key: &str) -> Vec<char> {
    key.chars().filter(|c| !"_-".contains(*c)).map(|c| c.to_ascii_lowercase()).collect()
}

/// The edit distance: letters to insert, remove or change.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (row, left) in a.iter().enumerate() {
        // One row of the matrix is enough; `diagonal` holds the value that was just overwritten.
        let mut diagonal = above[0];
        above[0] = row + 1;
        for (column, right) in b.iter().enumerate() {
            let changed = diagonal + usize::from(left != right);
            diagonal = above[column + 1];
            above[column + 1] = changed.min(diagonal + 1).min(above[column] + 1);
        }
    }
    above[b.len()]
}
