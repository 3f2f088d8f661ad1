//! A table of plain text: columns of equal width, two spaces apart.

use crate::runtime::log::plain;

/// The rows under their head. Control characters in a server's text are replaced, so that a
/// terminal does not obey them.
pub(super) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(head)
        .chain(rows)
        .map(|row| row.iter().map(|cell| plain(cell)).collect())
        .collect();
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|row: &Vec<String>| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..).map_while(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let rows = vec![
            vec!["é".to_owned(), "1".to_owned()],
            vec!["longer".to_owned(), "a\x1b[2J".to_owned()],
        ];
        assert_eq!(table(&["name", "n"], rows), "name    n\né       1\nlonger  a\u{fffd}[2J");
    }
}
