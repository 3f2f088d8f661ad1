//! Draws the screen: totals, a table, the last events, and what lies above them.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Block, Borders, Clear, Paragraph, Row as TableRow, Table, TableState, Wrap,
};

use super::screen::{LOG, Mode, Screen, Shape, TABLES};
use super::told::{Mood, Row};

/// Lines of events below a table.
const EVENTS: u16 = 7;
/// The least height at which events are shown below a table.
const TALL: u16 = 18;

/// What each key does, for the help.
const HELP: [(&str, &str); 15] = [
    ("1 2 3 4, Tab", "tools, servers, queue, events"),
    ("↑ ↓, j k, PgUp PgDn", "choose a row"),
    ("Enter, Esc", "all that is known of it, and back"),
    ("/", "show only what contains a text; Esc: all"),
    ("s, S", "sort by the next column; the other way round"),
    ("", ""),
    ("r", "tools: reset the breaker"),
    ("o, c", "tools: hold the breaker open, or closed"),
    ("a", "tools: let the breaker decide by itself"),
    ("R", "servers: start it anew"),
    ("t, d", "queue: send a write at once; drop it"),
    ("", ""),
    ("q, ctrl-c", "leave"),
    ("", ""),
    ("", "Changes need the admin token: SEAWALL_ADMIN_TOKEN, or --config."),
];

pub(super) fn draw(frame: &mut Frame<'_>, screen: &mut Screen) {
    let [head, tabs, main, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(header(screen)), head);
    frame.render_widget(Paragraph::new(tab_line(screen)), tabs);
    let below = if frame.area().height >= TALL && screen.tab != LOG { EVENTS } else { 0 };
    let [main, log] = Layout::vertical([Constraint::Min(0), Constraint::Length(below)]).areas(main);
    match screen.tab {
        LOG => events(frame, screen, main, screen.scroll),
        _ => table(frame, screen, main),
    }
    if below > 0 {
        events(frame, screen, log, 0);
    }
    if let Mode::Details(key) = screen.mode.clone() {
        details(frame, screen, &key, main);
    }
    if screen.mode == Mode::Help {
        help(frame, frame.area());
    }
    frame.render_widget(Paragraph::new(footer(screen)), foot);
}

fn header(screen: &Screen) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut first =
        vec![Span::styled("seawall top", bold), Span::raw(format!("  {}  ", screen.address))];
    first.push(match (&screen.lost, screen.is_new) {
        (Some(why), is_new) => {
            let shown = if is_new { "" } else { " (what is shown is old)" };
            Span::styled(format!("AWAY, trying again{shown}: {why}"), colour(Mood::Bad))
        }
        (None, true) => Span::raw("asking"),
        (None, false) => Span::styled("live", Style::new().fg(Color::Green)),
    });
    let totals = screen.told.totals.iter().flat_map(|(name, value, is_bad)| {
        let style = if *is_bad { colour(Mood::Bad) } else { bold };
        [Span::raw(format!("{name} ")), Span::styled(value.clone(), style), Span::raw("  ")]
    });
    vec![Line::from(first), Line::from(totals.collect::<Vec<_>>())]
}

fn tab_line(screen: &Screen) -> Line<'static> {
    let names = TABLES.iter().map(|table| table.name).chain(["Events"]);
    let mut spans: Vec<Span<'static>> = names
        .enumerate()
        .map(|(place, name)| {
            let text = format!(" {} {name} ", place + 1);
            let is_shown = place == screen.tab;
            let style = if is_shown { Modifier::REVERSED } else { Modifier::empty() };
            Span::styled(text, Style::new().add_modifier(style))
        })
        .collect();
    if !screen.filter.is_empty() && screen.mode != Mode::Filter {
        spans.push(Span::raw(format!("  only what contains {:?}", screen.filter)));
    }
    Line::from(spans)
}

fn table(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let (Some(shape), Some(view)) = (TABLES.get(screen.tab), screen.views.get(screen.tab)) else {
        return;
    };
    let rows = screen.rows();
    if rows.is_empty() {
        let text = match (screen.tab, &screen.told.no_queue) {
            _ if screen.is_new => "nothing is known yet",
            (2, Some(why)) => why,
            _ if screen.filter.is_empty() => "nothing is here",
            _ => "nothing contains this text; Esc shows all",
        };
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let heads = shape.columns.iter().enumerate().map(|(place, (name, _, side))| {
        let arrow = match (place == view.sort, view.is_reversed) {
            (false, _) => "",
            (true, false) => "▾",
            (true, true) => "▴",
        };
        Line::from(format!("{name}{arrow}")).alignment(*side)
    });
    let widths = shape.columns.iter().map(|(_, width, _)| match width {
        0 => Constraint::Min(16),
        width => Constraint::Length(*width),
    });
    let drawn = Table::new(rows.iter().map(|row| table_row(row, shape)), widths)
        .header(TableRow::new(heads).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(screen.place());
    frame.render_stateful_widget(drawn, area, &mut state);
}

fn table_row<'a>(row: &'a Row, shape: &Shape) -> TableRow<'a> {
    let cells = row
        .cells
        .iter()
        .zip(shape.columns)
        .map(|(cell, (.., side))| Line::from(cell.text.as_str()).alignment(*side));
    TableRow::new(cells).style(colour(row.mood))
}

fn events(frame: &mut Frame<'_>, screen: &Screen, area: Rect, skip: usize) {
    let block = Block::new().borders(Borders::TOP).title("events");
    let lines: Vec<Line<'_>> =
        screen.log().skip(skip).take(area.height.into()).map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn details(frame: &mut Frame<'_>, screen: &mut Screen, key: &str, area: Rect) {
    let Some((row, events)) = screen.details(key) else {
        screen.mode = Mode::Table;
        return;
    };
    let width = row.facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let facts = row.facts.iter().map(|(name, value)| format!("{name:<width$}  {value}"));
    let head = std::iter::once(String::new()).chain(["events about it".to_owned()]);
    let told = events.iter().map(|line| (*line).to_owned());
    let all: Vec<String> = facts.chain(head).chain(told).collect();
    // Not farther than the last line.
    let skip = screen.scroll.min(all.len().saturating_sub(1));
    let lines: Vec<Line<'_>> = all.into_iter().skip(skip).map(Line::from).collect();
    let block = Block::bordered().title(format!(" {key} "));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block).wrap(Wrap { trim: false }), area);
    screen.scroll = skip;
}

fn help(frame: &mut Frame<'_>, all: Rect) {
    let lines: Vec<Line<'_>> =
        HELP.iter().map(|(key, text)| Line::from(format!(" {key:<20} {text}"))).collect();
    let height = u16::try_from(HELP.len()).unwrap_or(u16::MAX).saturating_add(2).min(all.height);
    let width = 88.min(all.width);
    let area = Rect::new((all.width - width) / 2, (all.height - height) / 2, width, height);
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" keys (any key closes this) ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn footer(screen: &Screen) -> Line<'static> {
    let text = match &screen.mode {
        Mode::Filter => format!("/{}▏  Enter: keep, Esc: all", screen.filter),
        Mode::Sure(question, _) => format!("{question}  y: yes, any other key: no"),
        _ if !screen.said.is_empty() => screen.said.clone(),
        _ => match screen.tab {
            0 => "?: help  /: filter  s: sort  Enter: details  r: reset  o c a: force  q: leave",
            1 => "?: help  /: filter  s: sort  Enter: details  R: restart  q: leave",
            2 => "?: help  /: filter  s: sort  Enter: details  t: retry  d: drop  q: leave",
            _ => "?: help  /: filter  ↑ ↓: scroll  q: leave",
        }
        .to_owned(),
    };
    let style = match screen.mode {
        Mode::Sure(..) => colour(Mood::Warn),
        _ => Style::new(),
    };
    Line::styled(text, style)
}

fn colour(mood: Mood) -> Style {
    match mood {
        Mood::Well => Style::new(),
        Mood::Warn => Style::new().fg(Color::Yellow),
        Mood::Bad => Style::new().fg(Color::Red),
    }
}
