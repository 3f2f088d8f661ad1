//! Decides a tool's effect (may an attempt be repeated?) and its kind (which default policy
//! applies?).
//!
//! Kind and effect come from the operator's config, else from annotations, else from the name. A
//! name never widens against an annotation, and a tool of unknown effect is a `Write`.

use super::siblings::Siblings;

/// The effect of a tool: the result of executing it a second time.
///
/// ```
/// # use seawall::{Effect, ToolFacts};
/// assert!(Effect::Idempotent.is_replayable() && !Effect::Write.is_replayable());
/// assert_eq!(ToolFacts::named("frobnicate").effect(), Effect::Write, "nobody knows better");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Effect {
    /// Changes nothing.
    ReadOnly,
    /// Changes something once; a second execution changes nothing more.
    Idempotent,
    /// Changes something on each execution. A tool of unknown effect is a write.
    Write,
    /// Destroys something; never repeated on doubt, never queued.
    Destructive,
}

impl Effect {
    /// Whether an attempt that may have been executed can be sent again without harm.
    pub fn is_replayable(self) -> bool {
        matches!(self, Effect::ReadOnly | Effect::Idempotent)
    }
}

/// The kind of a tool, which picks its default policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Kind {
    /// Reads one thing.
    Read,
    /// Changes something.
    Write,
    /// Finds things by a query.
    Search,
    /// Lists things, often in pages.
    List,
    /// Does many things in one call.
    Batch,
}

/// The hints a server gives about a tool; `None` where it gives no hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "camelCase", default)
)]
pub struct Annotations {
    /// The tool changes nothing.
    pub read_only_hint: Option<bool>,
    /// The tool may destroy something.
    pub destructive_hint: Option<bool>,
    /// Repeating the tool changes nothing more.
    pub idempotent_hint: Option<bool>,
}

/// The evidence for a tool's kind or effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// The operator's config states it.
    Stated,
    /// This hint of the server.
    Hint(&'static str),
    /// This word of the tool's name.
    Word(&'static str),
    /// The preset knows the tool.
    Preset,
    /// The tool's effect, which leaves no other kind.
    Effect,
    /// No evidence; the default applies.
    Unknown,
}

/// The facts known about a tool before its first call.
///
/// ```
/// # use seawall::{Annotations, Effect, Kind, ToolFacts};
/// assert_eq!(ToolFacts::named("list_issues").effect(), Effect::ReadOnly);
/// assert_eq!(ToolFacts::named("delete_repo").effect(), Effect::Write);
///
/// let annotations = Annotations { idempotent_hint: Some(true), ..Annotations::default() };
/// let hinted = ToolFacts { annotations, ..ToolFacts::named("set_label") };
/// assert_eq!(hinted.effect(), Effect::Idempotent);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ToolFacts<'a> {
    /// The tool's name at its server.
    pub name: &'a str,
    /// The kind from the operator's config.
    pub kind: Option<Kind>,
    /// The effect from the operator's config.
    pub effect: Option<Effect>,
    /// The server's hints.
    pub annotations: Annotations,
    /// The server is not trusted: its hints may only narrow the effect, never widen it.
    pub distrust_annotations: bool,
    /// The facts that the names of the server's other tools reveal.
    pub siblings: Siblings,
    /// The effect that the preset knows; a server's hint that the tool writes outranks a known
    /// read.
    pub known: Option<Effect>,
}

impl<'a> ToolFacts<'a> {
    /// A tool of which only the name is known.
    pub fn named(name: &'a str) -> Self {
        Self { name, ..Self::default() }
    }

    /// The tool's effect.
    pub fn effect(&self) -> Effect {
        self.judge_effect().0
    }

    /// The tool's effect, and the evidence for it.
    pub fn judge_effect(&self) -> (Effect, Ground) {
        if let Some(effect) = self.effect {
            return (effect, Ground::Stated);
        }
        // Before the hints: a server's hint must not widen a tool that the preset knows to destroy.
        if self.known == Some(Effect::Destructive) {
            return (Effect::Destructive, Ground::Preset);
        }
        let hints = self.annotations;
        if !self.distrust_annotations {
            if hints.read_only_hint == Some(true) {
                return (Effect::ReadOnly, Ground::Hint("readOnlyHint"));
            }
            if hints.idempotent_hint == Some(true) {
                return (Effect::Idempotent, Ground::Hint("idempotentHint"));
            }
        }
        // Outside the trust check: this hint narrows, and a distrusted server may narrow.
        if hints.destructive_hint == Some(true) {
            return (Effect::Destructive, Ground::Hint("destructiveHint"));
        }
        let verbs = Verbs::of(self);
        match (self.hint_of_a_write(), verbs.only_read()) {
            (Some(hint), _) => (Effect::Write, Ground::Hint(hint)),
            (None, _) if self.known == Some(Effect::ReadOnly) => (Effect::ReadOnly, Ground::Preset),
            (None, Some(verb)) => (Effect::ReadOnly, Ground::Word(verb)),
            (None, None) => (Effect::Write, verbs.writes().map_or(Ground::Unknown, Ground::Word)),
        }
    }

    /// The hint that says that the tool writes, without saying whether a repeat is harmless.
    fn hint_of_a_write(&self) -> Option<&'static str> {
        let hints = self.annotations;
        match hints.read_only_hint {
            Some(true) => None,
            Some(false) => Some("readOnlyHint"),
            // The protocol defines these two hints only for tools that write.
            None if hints.destructive_hint.is_some() => Some("destructiveHint"),
            None => hints.idempotent_hint.map(|_| "idempotentHint"),
        }
    }

    /// The tool's kind; `None` where neither config, hints nor name give one.
    pub fn kind(&self) -> Option<Kind> {
        self.judge_kind().0
    }

    /// The tool's kind, and the evidence for it.
    pub fn judge_kind(&self) -> (Option<Kind>, Ground) {
        if self.kind.is_some() {
            return (self.kind, Ground::Stated);
        }
        let by_name = Verbs::of(self).kind();
        let hinted = self.annotations != Annotations::default();
        match (self.effect(), by_name) {
            (_, Some((Kind::Batch, verb))) => (Some(Kind::Batch), Ground::Word(verb)),
            (Effect::ReadOnly, Some((Kind::Write, _)) | None) => (Some(Kind::Read), Ground::Effect),
            (Effect::ReadOnly, Some((reading, verb))) => (Some(reading), Ground::Word(verb)),
            (_, Some((Kind::Write, verb))) => (Some(Kind::Write), Ground::Word(verb)),
            (_, Some(_)) => (Some(Kind::Write), Ground::Effect),
            (_, None) if hinted || self.effect.is_some() => (Some(Kind::Write), Ground::Effect),
            (_, None) => (None, Ground::Unknown),
        }
    }
}

const READ: &[&str] =
    &["get", "read", "fetch", "retrieve", "describe", "show", "view", "count", "lookup", "peek"];
const SEARCH: &[&str] = &["search", "find", "grep"];
const LIST: &[&str] = &["list", "browse"];
const BATCH: &[&str] = &["batch", "bulk"];
const WRITE: &[&str] = &[
    "accept", "ack", "acquire", "add", "append", "apply", "approve", "archive", "assign", "buy",
    "cancel", "claim", "clear", "close", "commit", "consume", "copy", "create", "delete", "deploy",
    "dedupe", "dequeue", "destroy", "disable", "drop", "edit", "enable", "erase", "execute",
    "insert", "install", "invite", "kill", "lock", "mark", "merge", "move", "patch", "pay", "pop",
    "post", "publish", "purge", "push", "put", "redeem", "reject", "remove", "rename", "replace",
    "reserve", "reset", "restart", "revoke", "run", "save", "send", "set", "start", "stop",
    "submit", "transfer", "trigger", "unlock", "update", "upload", "upsert", "wipe", "write",
];
/// Verbs that are also nouns: they count only as the last word, behind their object, as in
/// `get_ticket_book`.
const WRITE_LAST: &[&str] = &["book", "checkout", "purchase", "refresh", "register", "sync"];

/// Noun pairs that end in such a verb but mean no action: an order book is read, a ticket is
/// booked.
const COMPOUNDS: &[(&str, &str)] =
    &[("order", "book"), ("address", "book"), ("phone", "book"), ("cash", "register")];

const JOINTS: &[&str] = &["and", "or", "then"];
/// First words that name a place, not an action.
const NAMESPACES: &[&str] = &["api", "browser", "mcp", "pdg"];
/// Targets that a query can only read, because their query language cannot write.
const QUERIED: &[&str] =
    &["docs", "documentation", "library", "libraries", "logs", "metrics", "pdg", "traces"];
/// Last words that make `resolve` a lookup, unlike `resolve_issue`, which settles the issue.
const RESOLVED: &[&str] =
    &["address", "dns", "hostname", "id", "ids", "name", "names", "path", "symbol", "uri", "url"];

/// Whether a word names an action of a tool.
pub(crate) fn is_verb(word: &str) -> bool {
    [READ, SEARCH, LIST, BATCH, WRITE, WRITE_LAST].iter().any(|verbs| verbs.contains(&word))
}

/// The words of a tool's name, in lower case: `getUser`, `get_user` and `get-user` give the same
/// words.
pub(crate) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut after_lower, mut after_upper) = (false, false);
    let mut rest = name.chars();
    while let Some(c) = rest.next() {
        // `APIDelete` is two words, `IDs` is one.
        let mut next = rest.clone();
        let (one, two) = (next.next(), next.next());
        let is_plural = one == Some('s') && !two.is_some_and(char::is_lowercase);
        let ends_acronym = after_upper && one.is_some_and(char::is_lowercase) && !is_plural;
        let starts_word =
            !c.is_alphanumeric() || (c.is_uppercase() && (after_lower || ends_acronym));
        if starts_word {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase() || c.is_numeric();
        after_upper = c.is_uppercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The words of a tool's name.
struct Verbs {
    words: Vec<String>,
    /// How many leading words name the server or a place, and no action.
    prefix: usize,
}

impl Verbs {
    fn of(tool: &ToolFacts<'_>) -> Self {
        let words = words(tool.name);
        let prefix = tool.siblings.prefix.min(words.len().saturating_sub(1));
        let is_place = prefix + 1 < words.len() && NAMESPACES.contains(&words[prefix].as_str());
        Self { prefix: prefix + usize::from(is_place), words }
    }

    fn has(&self, verbs: &[&'static str]) -> Option<&'static str> {
        self.words.iter().find_map(|word| verbs.iter().find(|verb| word == *verb).copied())
    }

    fn starts_with(&self, verbs: &[&'static str]) -> Option<&'static str> {
        let first = self.words.get(self.prefix)?;
        verbs.iter().find(|verb| first == *verb).copied()
    }

    /// The verb that says that the tool reads, and the kind of read. Ambiguous verbs (`query`,
    /// `resolve`) count only together with the right other words.
    fn reads(&self) -> Option<(Kind, &'static str)> {
        let clear = [(SEARCH, Kind::Search), (LIST, Kind::List), (READ, Kind::Read)];
        let clear =
            clear.into_iter().find_map(|(verbs, kind)| Some((kind, self.starts_with(verbs)?)));
        let last_is =
            |known: &[&str]| self.words.last().is_some_and(|word| known.contains(&word.as_str()));
        let queries = || self.starts_with(&["query"]).filter(|_| self.has(QUERIED).is_some());
        let resolves = || self.starts_with(&["resolve"]).filter(|_| last_is(RESOLVED));
        clear
            .or_else(|| queries().map(|verb| (Kind::Search, verb)))
            .or_else(|| resolves().map(|verb| (Kind::Read, verb)))
    }

    /// The verb that says that the tool reads, unless another word says more.
    fn only_read(&self) -> Option<&'static str> {
        // `get_and_lock`, `find_or_make`: the part behind the joint may change something.
        let is_clear = || self.writes().is_none() && self.has(JOINTS).is_none();
        self.reads().filter(|_| is_clear()).map(|(_, verb)| verb)
    }

    fn writes(&self) -> Option<&'static str> {
        self.has(WRITE).or_else(|| match self.words.as_slice() {
            [_, .., before, last] if !COMPOUNDS.contains(&(before.as_str(), last.as_str())) => {
                WRITE_LAST.iter().find(|verb| last == *verb).copied()
            }
            _ => None,
        })
    }

    fn kind(&self) -> Option<(Kind, &'static str)> {
        let batch = self.has(BATCH).map(|verb| (Kind::Batch, verb));
        let write = || self.writes().map(|verb| (Kind::Write, verb));
        batch.or_else(write).or_else(|| self.reads())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(
        read_only: Option<bool>,
        destructive: Option<bool>,
        idempotent: Option<bool>,
    ) -> Annotations {
        Annotations {
            read_only_hint: read_only,
            destructive_hint: destructive,
            idempotent_hint: idempotent,
        }
    }

    #[test]
    fn clear_read_verbs_make_a_read_and_everything_else_is_a_write() {
        for (name, effect) in [
            ("get_issue", Effect::ReadOnly),
            ("listIssues", Effect::ReadOnly),
            ("search-issues", Effect::ReadOnly),
            ("get_or_create_user", Effect::Write),
            ("find_and_replace", Effect::Write),
            ("get_next_job_and_lock", Effect::Write),
            ("lookup_and_reserve_seat", Effect::Write),
            ("list_then_clear", Effect::Write),
            ("create_issue", Effect::Write),
            ("test-tool", Effect::Write),
            ("forget_user", Effect::Write),
            ("query", Effect::Write),
            ("getAPIDelete", Effect::Write),
            ("findPRMerge", Effect::Write),
            ("listVMReset", Effect::Write),
            ("search_buy", Effect::Write),
            ("get_ticket_book", Effect::Write),
            ("get_token_refresh", Effect::Write),
            ("getAPIKeyIDs", Effect::ReadOnly),
            ("listPRs", Effect::ReadOnly),
            ("get_book", Effect::ReadOnly),
            ("get_order", Effect::ReadOnly),
            ("get_sync_status", Effect::ReadOnly),
            ("list_bookings", Effect::ReadOnly),
            ("get_order_book", Effect::ReadOnly),
            ("API-get-user", Effect::ReadOnly),
            ("API-post-search", Effect::Write),
            ("browser_find", Effect::ReadOnly),
            ("browser_click", Effect::Write),
            ("query-docs", Effect::ReadOnly),
            ("pdg_query", Effect::ReadOnly),
            ("resolve-library-id", Effect::ReadOnly),
            ("resolve_issue", Effect::Write),
            ("resolve_conflict_by_id_and_close", Effect::Write),
            ("sql_query", Effect::Write),
            ("query_database", Effect::Write),
            ("api_query", Effect::Write),
            ("api", Effect::Write),
            ("acme_get_user", Effect::Write),
            ("", Effect::Write),
        ] {
            assert_eq!(ToolFacts::named(name).effect(), effect, "{name}");
        }
    }

    #[test]
    fn a_prefix_that_all_tools_share_is_looked_behind_and_never_against_an_annotation() {
        let siblings = Siblings { prefix: 1, ..Siblings::default() };
        let of = |name| ToolFacts { siblings, ..ToolFacts::named(name) };
        for (name, effect) in [
            ("acme_get_user", Effect::ReadOnly),
            ("acme_api_list_users", Effect::ReadOnly),
            ("acme_get_and_lock", Effect::Write),
            ("acme_delete_user", Effect::Write),
            ("acme_frob", Effect::Write),
            ("get", Effect::ReadOnly),
        ] {
            assert_eq!(of(name).effect(), effect, "{name}");
        }
        assert_eq!(
            (of("acme_list_users").kind(), of("acme_find").kind()),
            (Some(Kind::List), Some(Kind::Search))
        );
        let says_write =
            ToolFacts { annotations: hints(Some(false), None, None), ..of("acme_get_user") };
        assert_eq!(says_write.effect(), Effect::Write);
    }

    #[test]
    fn what_a_preset_knows_narrows_always_and_widens_never_against_an_annotation() {
        let knows = |known, annotations| ToolFacts {
            known: Some(known),
            annotations,
            ..ToolFacts::named("frob")
        };
        let bare = Annotations::default();
        assert_eq!(
            knows(Effect::ReadOnly, bare).judge_effect(),
            (Effect::ReadOnly, Ground::Preset)
        );
        assert_eq!(knows(Effect::ReadOnly, hints(Some(false), None, None)).effect(), Effect::Write);
        assert_eq!(
            knows(Effect::ReadOnly, hints(None, Some(true), None)).effect(),
            Effect::Destructive
        );
        assert_eq!(
            knows(Effect::Destructive, hints(Some(true), None, None)).effect(),
            Effect::Destructive
        );
        let stated = ToolFacts { effect: Some(Effect::Write), ..knows(Effect::Destructive, bare) };
        assert_eq!(stated.effect(), Effect::Write);
    }

    #[test]
    fn names_fall_into_words() {
        for (name, expected) in [
            ("getAPIDelete", &["get", "api", "delete"][..]),
            ("get_user-name", &["get", "user", "name"]),
            ("listURLs", &["list", "urls"]),
            ("getIDsOf", &["get", "ids", "of"]),
            ("HTMLSource", &["html", "source"]),
            ("readX", &["read", "x"]),
            ("GET", &["get"]),
            ("getIssue2Close", &["get", "issue2", "close"]),
            ("", &[]),
        ] {
            assert_eq!(words(name), expected, "{name}");
        }
    }

    #[test]
    fn config_outranks_annotations_and_annotations_outrank_the_name() {
        let says_write = ToolFacts {
            annotations: hints(Some(false), None, None),
            ..ToolFacts::named("get_issue")
        };
        assert_eq!(says_write.effect(), Effect::Write);

        let repeats = ToolFacts {
            annotations: hints(None, None, Some(false)),
            ..ToolFacts::named("get_next_job")
        };
        assert_eq!(repeats.effect(), Effect::Write, "each repeat does something more");

        for name in ["get_lock", "fetch_claim_ticket", "read_pop"] {
            assert_ne!(
                ToolFacts::named(name).effect(),
                Effect::ReadOnly,
                "{name} takes what it gets"
            );
        }

        let configured = ToolFacts { effect: Some(Effect::ReadOnly), ..says_write };
        assert_eq!(configured.effect(), Effect::ReadOnly);

        let says_read = ToolFacts {
            annotations: hints(Some(true), None, None),
            ..ToolFacts::named("create_report")
        };
        assert_eq!(says_read.effect(), Effect::ReadOnly);
        assert_eq!(says_read.kind(), Some(Kind::Read));
    }

    #[test]
    fn distrusted_annotations_only_narrow() {
        let distrust = |name, annotations| {
            ToolFacts { annotations, distrust_annotations: true, ..ToolFacts::named(name) }.effect()
        };

        assert_eq!(distrust("create_issue", hints(Some(true), None, None)), Effect::Write);
        assert_eq!(distrust("create_issue", hints(None, None, Some(true))), Effect::Write);
        assert_eq!(distrust("get_issue", hints(Some(false), None, None)), Effect::Write);
        assert_eq!(distrust("get_issue", hints(None, Some(true), None)), Effect::Destructive);
        assert_eq!(distrust("get_issue", hints(None, None, Some(true))), Effect::Write);
        assert_eq!(distrust("get_issue", hints(Some(true), None, Some(false))), Effect::ReadOnly);
        assert_eq!(distrust("get_issue", Annotations::default()), Effect::ReadOnly);
    }

    #[test]
    fn kinds_follow_the_name_within_the_effect() {
        for (name, kind) in [
            ("get_issue", Some(Kind::Read)),
            ("create_issue", Some(Kind::Write)),
            ("search_issues", Some(Kind::Search)),
            ("list_issues_paginated", Some(Kind::List)),
            ("batch_label_issues", Some(Kind::Batch)),
            ("test-tool", None),
        ] {
            assert_eq!(ToolFacts::named(name).kind(), kind, "{name}");
        }
        let writes = ToolFacts {
            annotations: hints(Some(false), None, None),
            ..ToolFacts::named("list_and_mark")
        };
        assert_eq!(writes.kind(), Some(Kind::Write));
    }

    #[test]
    fn what_says_so_is_told() {
        let on = |name, annotations| ToolFacts { annotations, ..ToolFacts::named(name) };
        let bare = Annotations::default();
        for (facts, effect, kind) in [
            (on("get_issue", bare), Ground::Word("get"), Ground::Word("get")),
            (on("create_issue", bare), Ground::Word("create"), Ground::Word("create")),
            (on("get_and_lock", bare), Ground::Word("lock"), Ground::Word("lock")),
            (on("frob", bare), Ground::Unknown, Ground::Unknown),
            (
                on("frob", hints(Some(true), None, None)),
                Ground::Hint("readOnlyHint"),
                Ground::Effect,
            ),
            (
                on("get_x", hints(None, None, Some(false))),
                Ground::Hint("idempotentHint"),
                Ground::Effect,
            ),
            (
                on("get_x", hints(None, Some(false), Some(false))),
                Ground::Hint("destructiveHint"),
                Ground::Effect,
            ),
            (
                on("get_x", hints(Some(false), None, None)),
                Ground::Hint("readOnlyHint"),
                Ground::Effect,
            ),
            (
                on("bulk_get", hints(Some(true), None, None)),
                Ground::Hint("readOnlyHint"),
                Ground::Word("bulk"),
            ),
        ] {
            assert_eq!((facts.judge_effect().1, facts.judge_kind().1), (effect, kind), "{facts:?}");
        }
        let stated = ToolFacts {
            effect: Some(Effect::Write),
            kind: Some(Kind::List),
            ..ToolFacts::named("get_x")
        };
        assert_eq!(
            (stated.judge_effect().1, stated.judge_kind().1),
            (Ground::Stated, Ground::Stated)
        );
    }
}
