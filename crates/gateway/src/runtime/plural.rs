//! How many there are of something, in words: `1 tool`, `2 tools`.

/// So many of what is called `one`, whose plural ends in `s`.
pub(crate) fn counted(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}
