//! Decides how TOML is read, with the line of each value.

use ::toml::Spanned;
use ::toml::de::{DeInteger, DeTable, DeValue};

use super::problem::{ConfigPlace, Problems};
use super::tree::{ConfigNode, ConfigValue};

/// Parses a TOML text into a tree; every syntax error is a problem.
pub(super) fn parse(text: &str, problems: &mut Problems) -> Option<ConfigNode> {
    let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let lines = LineStarts(starts);
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut slips: Vec<_> = errors
        .iter()
        .map(|error| (lines.of(error.span().map_or(0, |span| span.start)), error.message()))
        .collect();
    slips.dedup();
    for (line, message) in &slips {
        problems.push(ConfigPlace::line(*line).problem(format!("not valid TOML: {message}")));
    }
    slips.is_empty().then(|| ConfigNode {
        line: 1,
        span: 0..text.len(),
        value: table(root.get_ref(), &lines),
    })
}

/// The byte at which each line starts.
struct LineStarts(Vec<usize>);

impl LineStarts {
    fn of(&self, at: usize) -> usize {
        self.0.partition_point(|start| *start <= at)
    }
}

fn table(table: &DeTable<'_>, lines: &LineStarts) -> ConfigValue {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let node = ConfigNode { line: lines.of(key.span().start), ..node(value, lines) };
        (AsRef::<str>::as_ref(key.get_ref()).to_owned(), node)
    };
    ConfigValue::Table(entries.into_iter().map(entry).collect())
}

fn node(value: &Spanned<DeValue<'_>>, lines: &LineStarts) -> ConfigNode {
    ConfigNode {
        line: lines.of(value.span().start),
        span: value.span(),
        value: convert(value.get_ref(), lines),
    }
}

/// The parser bounds the nesting of values, so this recursion is bounded too.
fn convert(value: &DeValue<'_>, lines: &LineStarts) -> ConfigValue {
    match value {
        DeValue::String(text) => ConfigValue::Text(text.to_string()),
        DeValue::Integer(number) => ConfigValue::Number(decimal(number)),
        DeValue::Float(number) => ConfigValue::Number(number.as_str().to_owned()),
        DeValue::Boolean(flag) => ConfigValue::Flag(*flag),
        DeValue::Datetime(_) => ConfigValue::Date,
        DeValue::Array(items) => {
            ConfigValue::List(items.iter().map(|item| node(item, lines)).collect())
        }
        DeValue::Table(entries) => table(entries, lines),
    }
}

fn decimal(number: &DeInteger<'_>) -> String {
    let text = number.as_str();
    i128::from_str_radix(text, number.radix())
        .map_or_else(|_| text.to_owned(), |number| number.to_string())
}
