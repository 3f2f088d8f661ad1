//! A strict reader of the Prometheus text format: what it does not refuse, no scraper refuses.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// What a scrape says.
pub(crate) struct Scrape {
    pub(crate) text: String,
    samples: Vec<(String, Labels, f64)>,
}

impl Scrape {
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line has no end");
        let mut kinds: BTreeMap<String, String> = BTreeMap::new();
        let mut helped = BTreeSet::new();
        let (mut family, mut samples, mut series) = (String::new(), Vec::new(), BTreeSet::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect(line);
                assert!(
                    is_name(name) && !help.is_empty() && helped.insert(name.to_owned()),
                    "{line}"
                );
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect(line);
                assert!(
                    ["counter", "gauge", "histogram"].contains(&kind) && helped.contains(name),
                    "{line}"
                );
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
                name.clone_into(&mut family);
                continue;
            }
            let (name, labels, value) = sample(line);
            let part =
                name.strip_prefix(&family).unwrap_or_else(|| panic!("{line} is not of {family}"));
            match kinds[&family].as_str() {
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&part), "{line}"),
                "counter" => assert!(part.is_empty() && value >= 0.0, "{line}"),
                _ => assert!(part.is_empty(), "{line}"),
            }
            assert!(series.insert((name.clone(), labels.clone())), "the same series twice: {line}");
            samples.push((name, labels, value));
        }
        let scrape = Self { text: text.to_owned(), samples };
        for (name, _) in kinds.iter().filter(|(_, kind)| *kind == "histogram") {
            scrape.check_histogram(name);
        }
        scrape
    }

    /// Buckets grow, end with everything, and are counted and summed.
    fn check_histogram(&self, name: &str) {
        for (labels, count) in self.all(&format!("{name}_count")) {
            let is_ours = |bucket: &Labels| {
                labels.iter().all(|(label, value)| bucket.get(label) == Some(value))
            };
            let buckets: Vec<_> = self
                .all(&format!("{name}_bucket"))
                .into_iter()
                .filter(|(bucket, _)| is_ours(bucket))
                .map(|(bucket, value)| (bucket["le"].clone(), value))
                .collect();
            assert!(buckets.is_sorted_by(|(_, less), (_, more)| less <= more), "{buckets:?}");
            let bound = |le: &str| if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() };
            assert!(
                buckets.is_sorted_by(|(less, _), (more, _)| bound(less) < bound(more)),
                "{buckets:?}"
            );
            assert_eq!(buckets.last(), Some(&("+Inf".to_owned(), count)));
            let sums = self.all(&format!("{name}_sum"));
            assert_eq!(sums.iter().filter(|(of, _)| *of == labels).count(), 1, "{labels:?}");
        }
    }

    /// All samples of a name.
    pub(crate) fn all(&self, name: &str) -> Vec<(Labels, f64)> {
        let samples = self.samples.iter().filter(|(of, ..)| of == name);
        samples.map(|(_, labels, value)| (labels.clone(), *value)).collect()
    }

    /// The value of the one sample with these labels; 0 if there is none.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let wanted: Labels =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.all(name)
            .into_iter()
            .find(|(labels, _)| *labels == wanted)
            .map_or(0.0, |(_, value)| value)
    }

    /// The values that a label takes anywhere.
    pub(crate) fn values_of(&self, label: &str) -> BTreeSet<String> {
        self.samples.iter().filter_map(|(_, labels, _)| labels.get(label).cloned()).collect()
    }
}

fn is_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).expect(line);
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").expect(line);
            assert!(is_name(label) && !label.contains(':'), "{line}");
            let (value, after) = quoted(after, line);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None => {
                    rest = after.strip_prefix('}').expect(line);
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ').expect(line);
    assert!(!value.contains(' '), "{line}");
    (name.to_owned(), labels, value.parse().expect(line))
}

/// A label's value, and what stands after its closing quotation mark.
fn quoted<'a>(text: &'a str, line: &str) -> (String, &'a str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match letters.next() {
                Some((_, '\\')) => '\\',
                Some((_, '"')) => '"',
                Some((_, 'n')) => '\n',
                other => panic!("{other:?} in {line}"),
            }),
            letter => value.push(letter),
        }
    }
    panic!("no end: {line}");
}
