//! What repeating the tools of real servers would do: by their hints, and by their names alone.

use std::collections::BTreeMap;

use seawall::*;

struct Real {
    name: &'static str,
    annotations: Annotations,
    /// What it does.
    reads: bool,
    /// What its name alone says.
    seems_to_read: bool,
}

/// The tools of each server.
fn servers() -> BTreeMap<&'static str, Vec<Real>> {
    let mut servers: BTreeMap<_, Vec<Real>> = BTreeMap::new();
    for line in include_str!("real_tools.tsv").lines().filter(|line| !line.starts_with('#')) {
        let [server, name, hints, truth, by_name] =
            line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let hint = |yes: char, no: char| {
            hints.contains(yes).then_some(true).or(hints.contains(no).then_some(false))
        };
        let annotations = Annotations {
            read_only_hint: hint('r', 'w'),
            destructive_hint: hint('d', 'n'),
            idempotent_hint: hint('i', 'o'),
        };
        let (reads, seems_to_read) = (truth == "reads", by_name == "reads");
        servers.entry(server).or_default().push(Real { name, annotations, reads, seems_to_read });
    }
    servers
}

/// Every tool, with what the others of its server tell about it.
fn all() -> Vec<(String, Real, Siblings)> {
    let of = |(server, tools): (&str, Vec<Real>)| {
        let siblings = Siblings::of(tools.iter().map(|tool| tool.name));
        tools
            .into_iter()
            .map(move |tool| (format!("{server} {}", tool.name), tool, siblings))
            .collect::<Vec<_>>()
    };
    servers().into_iter().flat_map(of).collect()
}

#[test]
fn no_write_of_a_real_server_is_taken_for_a_read() {
    assert_eq!((servers().len(), all().len()), (13, 178));
    for (told, tool, siblings) in all() {
        let facts =
            ToolFacts { annotations: tool.annotations, siblings, ..ToolFacts::named(tool.name) };
        assert!(tool.reads || facts.effect() != Effect::ReadOnly, "{told} writes");
        let narrowed = ToolFacts { distrust_annotations: true, ..facts };
        assert!(
            tool.reads || narrowed.effect() != Effect::ReadOnly,
            "{told} writes, and its server is not trusted"
        );
    }
}

#[test]
fn the_names_of_real_tools_say_what_they_say() {
    for (told, tool, siblings) in all() {
        let by_name =
            ToolFacts { siblings, ..ToolFacts::named(tool.name) }.effect() == Effect::ReadOnly;
        assert_eq!(by_name, tool.seems_to_read, "{told}");
    }
    // By its name alone one tool is taken for less than it does: it can save what it got to a file,
    // and its hint says so.
    let wrong = all()
        .into_iter()
        .filter(|(_, tool, _)| tool.seems_to_read && !tool.reads)
        .map(|(told, ..)| told);
    assert_eq!(wrong.collect::<Vec<_>>(), ["chrome-devtools get_network_request"]);
}

#[test]
fn the_gitnexus_preset_knows_all_tools_of_gitnexus_and_no_others() {
    for (told, tool, siblings) in all() {
        let policy = |preset: Preset| {
            preset.policy(&ToolFacts { siblings, ..ToolFacts::named(tool.name) }, &Tiers::default())
        };
        let known = policy(Preset::Gitnexus);
        if told.starts_with("gitnexus ") {
            let expected = if tool.reads { Effect::ReadOnly } else { Effect::Destructive };
            assert_eq!(known.effect, expected, "{told}");
            let limit = if ["cypher", "impact"].contains(&tool.name) { 120 } else { 60 };
            assert_eq!(known.timeout.as_secs(), limit, "{told}");
        } else {
            assert_eq!(known.effect, policy(Preset::Default).effect, "{told}");
        }
    }
}
