//! Decides how a count is written: `1 tool`, `2 tools`.

/// A count of things called `one`, whose plural ends in `s`.
pub(crate) fn counted(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}
