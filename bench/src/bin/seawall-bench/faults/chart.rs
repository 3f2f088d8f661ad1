//! The chart: of a hundred things that agents wanted, how they ended, an arm each.

use std::fmt::Write as _;

use super::tally::Tally;

const LEFT: f64 = 190.0;
const WIDE: f64 = 480.0;
const HIGH: f64 = 26.0;
const COLOURS: [(&str, &str); 5] = [
    ("useful answer", "#2a9d8f"),
    ("queued", "#8ab17d"),
    ("honest failure", "#e9c46a"),
    ("no answer", "#9aa0a6"),
    ("false answer", "#d62828"),
];

/// Draws it.
pub(crate) fn draw(rows: &[(&str, Tally)]) -> String {
    let height = HIGH * (rows.len() as f64 + 2.5);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        LEFT + WIDE + 150.0
    );
    for (place, (name, colour)) in COLOURS.iter().enumerate() {
        let x = LEFT + place as f64 * 100.0;
        let _ =
            writeln!(svg, "<rect x=\"{x}\" y=\"8\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"18\">{name}</text>", x + 17.0);
    }
    let _ = writeln!(svg, "<text x=\"{}\" y=\"18\">duplicates</text>", LEFT + WIDE + 60.0);
    for (place, (name, tally)) in rows.iter().enumerate() {
        let y = HIGH * (place as f64 + 1.3);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>",
            LEFT - 8.0,
            y + 14.0
        );
        let mut x = LEFT;
        for (part, (_, colour)) in
            [tally.useful, tally.queued, tally.failed, tally.dark, tally.wrong]
                .into_iter()
                .zip(COLOURS)
        {
            let width = part as f64 / tally.wanted.max(1) as f64 * WIDE;
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"18\" fill=\"{colour}\"/>"
            );
            x += width;
        }
        let useful = Tally::percent(tally.useful, tally.wanted);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\">{useful:.1} %</text>",
            LEFT + WIDE + 8.0,
            y + 14.0
        );
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT + WIDE + 115.0,
            y + 14.0,
            tally.duplicates
        );
    }
    svg.push_str("</svg>\n");
    svg
}
