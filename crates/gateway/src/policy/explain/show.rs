//! Decides how an explanation is written: for people as a page of text, for programs as one flat
//! object.

use std::path::Path;

use seawall::Preset;
use serde_json::{Map, Value, json};

use super::ExplainedTool;
use super::told::{ExplainedValue, IgnoredSetting};
use crate::catalog::names;
use crate::config::policy::keys;
use crate::runtime::log;

impl ExplainedTool {
    /// The explanation for programs. The keys of `values` are those of a configuration.
    pub(crate) fn json(&self) -> Value {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        let value = |told: &ExplainedValue| {
            let mut value = json!({"value": told.value, "from": told.from, "place": told.place});
            if let Some(line) = told.line {
                value["file"] = json!(file);
                value["line"] = json!(line);
            }
            if let Some(IgnoredSetting { value: said, place, line, why }) = &told.ignored {
                value["ignored"] = json!({"value": said, "place": place, "line": line, "why": why});
            }
            (told.key.to_owned(), value)
        };
        let values: Map<String, Value> = self.values.iter().map(value).collect();
        let answers: Map<String, Value> = self
            .answers
            .iter()
            .map(|answer| (answer.name.to_owned(), json!(answer.text)))
            .collect();
        json!({
            "server": self.server,
            "tool": self.tool,
            "name": names::public(&self.server, &self.tool),
            "listed": self.is_listed,
            "values": values,
            "answers": answers,
            "notes": self.notes,
        })
    }

    /// The explanation for people.
    pub(crate) fn text(&self) -> String {
        let mut lines = vec![format!("{}/{}", self.server, self.tool)];
        lines.extend(self.notes.iter().map(|note| format!("Note: {note}")));
        lines.push(String::new());
        lines.extend(
            self.answers.iter().map(|answer| format!("{:<24}{}", answer.question, answer.text)),
        );
        let shown: Vec<String> = self.values.iter().map(|told| plain(&told.value)).collect();
        let width =
            shown.iter().map(|value| value.chars().count()).max().unwrap_or_default().min(24);
        let mut heading = "";
        for (told, value) in self.values.iter().zip(shown) {
            if let Some(key) = keys::find(told.key).filter(|key| key.heading != heading) {
                heading = key.heading;
                lines.extend([String::new(), heading.to_owned()]);
            }
            let file = self.file.as_deref();
            let ignored = told.ignored.as_ref().map(|ignored| {
                let place = at(ignored.place.as_deref().unwrap_or_default(), ignored.line, file);
                format!("; {} of {place} is ignored: {}", plain(&ignored.value), ignored.why)
            });
            let origin = origin(told, file);
            lines.push(format!(
                "  {:<26}{value:<width$}  {origin}{}",
                told.key,
                ignored.unwrap_or_default()
            ));
        }
        // Names come from servers, and may hold characters that a terminal would obey.
        lines.iter().map(|line| log::plain(line)).collect::<Vec<_>>().join("\n")
    }
}

/// The origin of a value, in a few words.
pub(super) fn origin(told: &ExplainedValue, file: Option<&Path>) -> String {
    let place = told.place.as_deref().unwrap_or_default();
    let words = match told.from {
        "built in" if place.is_empty() => "built in".to_owned(),
        "built in" => format!("built in, {place}"),
        "preset" => format!("preset {place:?}"),
        "environment" => format!("the variable {place}"),
        "annotation" => format!("the server's {place}"),
        "name" => format!("its name ({place:?})"),
        "effect" => "its effect".to_owned(),
        "unknown" => "nothing says so; what is unknown is treated with care".to_owned(),
        _ => place.to_owned(),
    };
    at(&words, told.line, file)
}

/// A place with its file and line, if both are known.
fn at(place: &str, line: Option<usize>, file: Option<&Path>) -> String {
    match (line, file) {
        (Some(line), Some(file)) => format!("{place} at {}:{line}", file.display()),
        _ => place.to_owned(),
    }
}

/// The name of a preset.
pub(super) fn preset(preset: Preset) -> &'static str {
    match preset {
        Preset::Default => "default",
        Preset::Blog => "blog",
        Preset::Gitnexus => "gitnexus",
        Preset::Caipe => "caipe",
    }
}

/// A value for people, without JSON quotes and brackets.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
