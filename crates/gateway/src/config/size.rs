//! Decides how a number of bytes is spelled: `"512KiB" "16MiB"`.

use super::problem::Problem;
use super::tree::{ConfigField, ConfigString};

/// The number of bytes that a field holds, within bounds.
pub(super) fn read(value: &ConfigField<'_>, least: usize, most: usize) -> Result<usize, Problem> {
    let ConfigString { place, text } = value.text()?;
    parse(&text, least, most).map_err(|error| place.problem(error))
}

fn parse(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let unreadable =
        || format!("{text:?} is not a size; write for example \"512KiB\" or \"16MiB\"");
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return Err(unreadable()),
    };
    let number: usize = number.parse().map_err(|_| unreadable())?;
    let size = number.checked_mul(unit).filter(|size| (least..=most).contains(size));
    size.ok_or_else(|| format!("must be from {}KiB to {}MiB", least >> 10, most >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit_and_keeps_within_bounds() {
        let parse = |text| parse(text, 64 << 10, 64 << 20);
        assert_eq!(
            (parse("64KiB"), parse("16MiB"), parse("64MiB")),
            (Ok(64 << 10), Ok(16 << 20), Ok(64 << 20))
        );
        for text in ["", "16", "MiB", "16 MiB", "16MB", "-1MiB", "1.5MiB", "16mib"] {
            assert!(parse(text).unwrap_err().contains("is not a size"), "{text}");
        }
        for text in ["0MiB", "63KiB", "65MiB", "18446744073709551615MiB"] {
            assert_eq!(parse(text).unwrap_err(), "must be from 64KiB to 64MiB", "{text}");
        }
    }
}
