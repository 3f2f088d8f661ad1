//! Holds what is shown, and decides what a key does.

use std::cmp::Ordering;
use std::collections::VecDeque;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::HorizontalAlignment;
use ratatui::layout::HorizontalAlignment::{Left, Right};

use super::feed::{Change, News};
use super::told::{Row, Told};

/// Lines of events that are kept.
const EVENTS: usize = 500;
/// The longest filter.
const LONGEST: usize = 64;
/// Rows that a page key moves.
const PAGE: usize = 10;

/// A table: its name, and its columns by name, width and alignment. A column without a width takes
/// what is left.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) columns: &'static [(&'static str, u16, HorizontalAlignment)],
    /// The column by which it is sorted at first.
    sort: usize,
    /// The column that decides between rows which are equal in the other.
    tie: usize,
}

/// The tables, in the order of their keys 1, 2 and 3; the events have 4.
pub(super) const TABLES: [Shape; 3] = [
    Shape {
        name: "Tools",
        columns: &[
            ("TOOL", 0, Left),
            ("BREAKER", 12, Left),
            ("PROBE", 8, Right),
            ("CALLS", 8, Right),
            ("ERRORS", 8, Right),
            ("P50", 9, Right),
            ("P99", 9, Right),
            ("RETRIES", 8, Right),
        ],
        sort: 1,
        tie: 3,
    },
    Shape {
        name: "Servers",
        columns: &[
            ("SERVER", 20, Left),
            ("STATE", 9, Left),
            ("TOOLS", 6, Right),
            ("PID", 8, Right),
            ("RESTARTS", 9, Right),
            ("SINCE", 6, Right),
            ("NEXT TRY", 9, Right),
            ("LAST ERROR", 0, Left),
        ],
        sort: 0,
        tie: 0,
    },
    Shape {
        name: "Queue",
        columns: &[
            ("ID", 10, Left),
            ("TOOL", 28, Left),
            ("STATE", 10, Left),
            ("TRIES", 6, Right),
            ("AGE", 6, Right),
            ("NEXT TRY", 9, Right),
            ("NOTE", 0, Left),
        ],
        sort: 4,
        tie: 0,
    },
];
/// The place of the events behind the tables.
pub(super) const LOG: usize = TABLES.len();

/// What comes of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Done {
    Nothing,
    Quit,
    Change(Change),
}

/// What a key means while something is open above the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Table,
    /// A filter is being typed.
    Filter,
    /// All that is known of one row.
    Details(String),
    Help,
    /// A change waits for a yes.
    Sure(String, Change),
}

/// How one table is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) sort: usize,
    pub(super) is_reversed: bool,
    /// The key of the row that is chosen: it stays chosen wherever it moves.
    chosen: String,
    /// Where it was seen last, for a row that has gone.
    place: usize,
}

/// What is shown.
pub(super) struct Screen {
    pub(super) address: String,
    pub(super) told: Told,
    /// Why nothing new is known; what is shown is old then.
    pub(super) lost: Option<String>,
    pub(super) is_new: bool,
    /// The newest first: the line, and what it is about.
    pub(super) events: VecDeque<(String, String)>,
    /// The table that is shown, or [`LOG`].
    pub(super) tab: usize,
    pub(super) views: [View; 3],
    pub(super) filter: String,
    pub(super) mode: Mode,
    /// What came of the last change.
    pub(super) said: String,
    /// The first line that is shown of a list without rows: events and details.
    pub(super) scroll: usize,
}

impl Screen {
    pub(super) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            told: Told::default(),
            lost: None,
            is_new: true,
            events: VecDeque::new(),
            tab: 0,
            views: [0, 1, 2]
                .map(|table: usize| View { sort: TABLES[table].sort, ..View::default() }),
            filter: String::new(),
            mode: Mode::Table,
            said: String::new(),
            scroll: 0,
        }
    }

    /// Takes what the gateway tells.
    pub(super) fn hear(&mut self, heard: News) {
        match heard {
            News::Told(told) => {
                (self.told, self.lost, self.is_new) = (*told, None, false);
            }
            News::Lost(why) => self.lost = Some(why),
            News::Changed(text) => self.said = text,
            News::Event(line, about) => {
                self.events.push_front((line, about));
                self.events.truncate(EVENTS);
            }
        }
    }

    /// The rows that are shown of the current table, in order.
    pub(super) fn rows(&self) -> Vec<&Row> {
        let tab = self.tab;
        let (Some(view), Some(shape), Some(rows)) =
            (self.views.get(tab), TABLES.get(tab), self.told.tables.get(tab))
        else {
            return Vec::new();
        };
        let wanted = self.filter.to_lowercase();
        let fits =
            |row: &&Row| row.cells.iter().any(|cell| cell.text.to_lowercase().contains(&wanted));
        let mut rows: Vec<&Row> = rows.iter().filter(fits).collect();
        rows.sort_by(|one, two| {
            let order = sorted(one, two, view.sort);
            let order = if view.is_reversed { order.reverse() } else { order };
            let tie = || sorted(one, two, shape.tie);
            order.then_with(tie).then_with(|| one.key.cmp(&two.key))
        });
        rows
    }

    /// The events that are shown.
    pub(super) fn log(&self) -> impl Iterator<Item = &str> {
        let wanted = self.filter.to_lowercase();
        let lines = self.events.iter().map(|(line, _)| line.as_str());
        lines.filter(move |line| line.to_lowercase().contains(&wanted))
    }

    /// The place of the row that is chosen.
    pub(super) fn place(&self) -> usize {
        let Some(view) = self.views.get(self.tab) else { return 0 };
        let rows = self.rows();
        let at = rows.iter().position(|row| row.key == view.chosen).unwrap_or(view.place);
        at.min(rows.len().saturating_sub(1))
    }

    /// The row that is chosen.
    pub(super) fn chosen(&self) -> Option<&Row> {
        self.rows().get(self.place()).copied()
    }

    /// The row whose details are shown, and the events about it.
    pub(super) fn details(&self, key: &str) -> Option<(&Row, Vec<&str>)> {
        let row = self.told.tables.get(self.tab)?.iter().find(|row| row.key == key)?;
        let events = self.events.iter().filter(|(_, about)| about == key);
        Some((row, events.map(|(line, _)| line.as_str()).collect()))
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Done {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Done::Quit;
        }
        self.said.clear();
        match std::mem::take(&mut self.mode) {
            Mode::Filter => {
                self.type_filter(key.code);
                Done::Nothing
            }
            Mode::Sure(_, change) => match key.code {
                KeyCode::Char('y') => Done::Change(change),
                _ => {
                    "nothing was changed".clone_into(&mut self.said);
                    Done::Nothing
                }
            },
            Mode::Help => Done::Nothing,
            mode @ (Mode::Table | Mode::Details(_)) => {
                self.mode = mode;
                self.command(key.code)
            }
        }
    }

    fn type_filter(&mut self, key: KeyCode) {
        self.mode = Mode::Filter;
        match key {
            KeyCode::Char(letter) if self.filter.chars().count() < LONGEST => {
                self.filter.push(letter);
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter => self.mode = Mode::Table,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Table;
            }
            _ => {}
        }
    }

    fn command(&mut self, key: KeyCode) -> Done {
        match key {
            KeyCode::Char('q') => return Done::Quit,
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char(digit @ '1'..='4') => self.show(digit as usize - '1' as usize),
            KeyCode::Tab => self.show((self.tab + 1) % (LOG + 1)),
            KeyCode::BackTab => self.show((self.tab + LOG) % (LOG + 1)),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-(PAGE as isize)),
            KeyCode::PageDown => self.move_by(PAGE as isize),
            KeyCode::Home => self.move_by(isize::MIN),
            KeyCode::End => self.move_by(isize::MAX),
            KeyCode::Char('s') => self.sort_next(),
            KeyCode::Char('S') => {
                if let Some(view) = self.views.get_mut(self.tab) {
                    view.is_reversed = !view.is_reversed;
                }
            }
            KeyCode::Enter => {
                if let Some(key) = self.chosen().map(|row| row.key.clone()) {
                    (self.mode, self.scroll) = (Mode::Details(key), 0);
                }
            }
            KeyCode::Esc if self.mode == Mode::Table => self.filter.clear(),
            KeyCode::Esc => self.mode = Mode::Table,
            KeyCode::Char(letter) => return self.change(letter),
            _ => {}
        }
        Done::Nothing
    }

    fn show(&mut self, tab: usize) {
        (self.tab, self.mode, self.scroll) = (tab, Mode::Table, 0);
    }

    fn sort_next(&mut self) {
        if let (Some(view), Some(table)) = (self.views.get_mut(self.tab), TABLES.get(self.tab)) {
            (view.sort, view.is_reversed) = ((view.sort + 1) % table.columns.len(), false);
        }
    }

    fn move_by(&mut self, rows: isize) {
        if self.tab == LOG || self.mode != Mode::Table {
            self.scroll = self.scroll.saturating_add_signed(rows).min(EVENTS);
            return;
        }
        let shown = self.rows();
        let last = shown.len().saturating_sub(1);
        let place = self.place().saturating_add_signed(rows).min(last);
        let chosen = shown.get(place).map(|row| row.key.clone()).unwrap_or_default();
        if let Some(view) = self.views.get_mut(self.tab) {
            (view.place, view.chosen) = (place, chosen);
        }
    }

    /// A change of the row that is chosen; what cannot be taken back is asked for first.
    fn change(&mut self, letter: char) -> Done {
        let key = match &self.mode {
            Mode::Details(key) => Some(key.clone()),
            _ => self.chosen().map(|row| row.key.clone()),
        };
        let Some(key) = key else { return Done::Nothing };
        let (sure, change) = match (self.tab, letter) {
            (0, 'r') => return Done::Change(Change::Reset(key)),
            (0, 'a') => return Done::Change(Change::Force(key, "auto")),
            (0, 'o') => (format!("Refuse all calls of {key}?"), Change::Force(key, "open")),
            (0, 'c') => (
                format!("Let all calls of {key} pass, whatever fails?"),
                Change::Force(key, "closed"),
            ),
            (1, 'R') => (format!("Start {key} anew?"), Change::Restart(key)),
            (2, 't') => return Done::Change(Change::Retry(key)),
            (2, 'd') => {
                (format!("Forget the write {key}, so that it is never made?"), Change::Drop(key))
            }
            _ => return Done::Nothing,
        };
        self.mode = Mode::Sure(sure, change);
        Done::Nothing
    }
}

/// Numbers: the largest first. Texts: from a to z.
fn sorted(one: &Row, two: &Row, column: usize) -> Ordering {
    let (Some(one), Some(two)) = (one.cells.get(column), two.cells.get(column)) else {
        return Ordering::Equal;
    };
    match (one.number, two.number) {
        (Some(one), Some(two)) => two.total_cmp(&one),
        _ => one.text.cmp(&two.text),
    }
}
