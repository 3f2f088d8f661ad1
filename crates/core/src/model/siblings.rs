//! Decides which facts the tool names of one server reveal together: their common prefix, and
//! whether the server is GitNexus.

use super::effect::{is_verb, words};
use super::gitnexus;

/// Facts that the tool list of a server reveals about each of its tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Siblings {
    /// How many leading words all names share: the server's own name, as in `slack_list_channels`.
    pub prefix: usize,
    /// The server is certainly not GitNexus, so the preset's knowledge of GitNexus tools does not
    /// apply.
    pub is_no_gitnexus: bool,
}

/// Fewer tools can share a first word by chance.
const FEWEST: usize = 3;

impl Siblings {
    /// Derives the facts from a list of tool names. Shared words are a prefix only if most names
    /// continue with a verb: `flush_cache`, `flush_logs` and `flush_search_index` share a verb of
    /// their own.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        let is_no_gitnexus = !gitnexus::ANCHORS.iter().all(|anchor| names.contains(anchor));
        let all: Vec<Vec<String>> = names.iter().map(|name| words(name)).collect();
        // At least one word of each name stays behind the prefix.
        let longest =
            all.iter().map(|words| words.len().saturating_sub(1)).min().unwrap_or_default();
        let is_shared =
            |length: &usize| all.windows(2).all(|pair| pair[0][..*length] == pair[1][..*length]);
        let goes_on_with_verbs = |length: &usize| {
            let verbs = all.iter().filter(|words| is_verb(&words[*length])).count();
            verbs * 2 > all.len()
        };
        let has_no_verb = |length: &usize| {
            all.first().is_some_and(|words| !words[..*length].iter().any(|word| is_verb(word)))
        };
        let lengths = (1..=longest).take_while(is_shared).take_while(has_no_verb);
        let prefix = if all.len() < FEWEST {
            0
        } else {
            lengths.filter(goes_on_with_verbs).last().unwrap_or_default()
        };
        Self { prefix, is_no_gitnexus }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_that_all_names_begin_with_are_the_servers_own() {
        let prefix = |names: &[&str]| Siblings::of(names.iter().copied()).prefix;
        assert_eq!(
            prefix(&[
                "slack_list_channels",
                "slack_post_message",
                "slack_get_users",
                "slack_reply"
            ]),
            1
        );
        assert_eq!(prefix(&["API-get-user", "API-post-search", "API-patch-page"]), 1);
        assert_eq!(
            prefix(&["acme_crm_get_user", "acme_crm_list_users", "acme_crm_delete_user"]),
            2
        );
        for none in [
            &["slack_list_channels", "slack_get_users"][..],
            &["flush_cache", "flush_logs", "flush_search_index"],
            &["get_user", "get_issue", "get_page"],
            &["slack_list", "github_list", "slack_get"],
            &["list", "get", "find"],
            &[],
        ] {
            assert_eq!(prefix(none), 0, "{none:?}");
        }
    }

    #[test]
    fn gitnexus_is_known_by_the_tools_that_all_its_versions_have() {
        assert!(!Siblings::of(["search", "context", "cypher", "impact"]).is_no_gitnexus);
        assert!(Siblings::of(["context", "check"]).is_no_gitnexus);
    }
}
