//! Decides which known key somebody may have meant.

/// The nearest of `known`, if it is near enough to be a slip of `key`.
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

/// What to say about a key that nobody knows.
pub(super) fn unknown(key: &str, known: &[&str]) -> String {
    match nearest(key, known) {
        Some(name) => format!("unknown key; did you mean \"{name}\"?"),
        None => format!("unknown key; known are {}", known.join(", ")),
    }
}

/// `allowedHosts` and `allowed-hosts` are `allowed_hosts`, spelled by another habit.
fn plain(key: &str) -> Vec<char> {
    key.chars().filter(|c| !"_-".contains(*c)).map(|c| c.to_ascii_lowercase()).collect()
}

/// How many letters have to be put in, taken out or changed.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (row, left) in a.iter().enumerate() {
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
