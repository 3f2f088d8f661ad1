//! The screen as a user sees it, for answers of the admin API as they are.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::draw;
use super::feed::{Change, News};
use super::screen::{Done, Screen};
use super::told::Told;

const NOW: u64 = 1_000_000;

fn tool(calls: u64, errors: u64, p50: Value, p99: Value) -> Value {
    json!({"server": "web", "tool": "x", "calls": calls, "errors": errors, "retries": errors / 2, "p50Ms": p50, "p99Ms": p99})
}

fn breaker(status: &str, mode: &str, wait: Option<u64>) -> Value {
    json!({"status": status, "mode": mode, "failures": 5, "trips": 1, "retryAfterMs": wait})
}

fn told() -> News {
    let servers = json!({"servers": {
        "web": {"status": "up", "tools": 3, "pid": 4711, "restarts": 0, "since": NOW - 61_000, "stderr": ["one\u{1b}[2J", "two"]},
        "gone": {"status": "away", "tools": null, "restarts": 2, "nextTryMs": 4000, "lastError": "could not be reached: refused"},
    }});
    let breakers = json!({
        "details": {
            "web__fetch": breaker("closed", "auto", None),
            "web__find": breaker("closed", "forced_open", None),
            "web__search": breaker("open", "auto", Some(41_000)),
        },
        "metrics": {"calls": 130, "errors": 13, "retries": 6, "fallbacks": 2},
    });
    let tools = json!({"tools": {
        "web__fetch": tool(120, 3, json!(3.2), json!(1250.0)),
        "web__search": tool(10, 10, json!(0.9), json!(4.0)),
        "web__find": tool(0, 0, Value::Null, Value::Null),
    }});
    let queue = json!({"waiting": 1, "delivering": 0, "dead": 1, "items": [
        {"id": "q1", "server": "mail", "tool": "send", "state": "waiting", "attempts": 1, "enqueued": NOW - 5000, "nextAttempt": NOW + 2000, "mayHaveExecuted": false, "lastError": "429"},
        {"id": "q2", "server": "mail", "tool": "send", "state": "dead", "attempts": 9, "enqueued": NOW - 90_000, "mayHaveExecuted": true, "lastError": "gone"},
    ]});
    News::Told(Box::new(Told::of(&servers, &breakers, &tools, Ok(&queue), NOW)))
}

/// A screen that knows all of the above.
fn screen() -> Screen {
    let mut screen = Screen::new("127.0.0.1:7333");
    screen.hear(told());
    for (line, about) in [
        ("09:05:03.120  retry_scheduled     web__fetch    attempt=1", "web__fetch"),
        ("09:05:04.120  breaker_changed     web__search   to=open", "web__search"),
    ] {
        screen.hear(News::Event(line.to_owned(), about.to_owned()));
    }
    screen
}

/// What is drawn, line by line.
fn drawn(screen: &mut Screen, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame, screen)).unwrap();
    let text = terminal.backend().to_string();
    let lines = text.lines().map(|line| line.trim_matches('"').trim_end());
    lines.collect::<Vec<_>>().join("\n")
}

fn press(screen: &mut Screen, keys: &str) -> Done {
    let code = |letter| match letter {
        '\n' => KeyCode::Enter,
        '\u{1b}' => KeyCode::Esc,
        '\t' => KeyCode::Tab,
        '↓' => KeyCode::Down,
        letter => KeyCode::Char(letter),
    };
    let press = |letter| screen.press(KeyEvent::new(code(letter), KeyModifiers::NONE));
    keys.chars().map(press).last().unwrap()
}

/// The names in the first column, in the order in which they are shown.
fn names(screen: &Screen) -> Vec<&str> {
    screen.rows().iter().map(|row| row.key.as_str()).collect()
}

#[test]
fn each_table_shows_what_the_dashboard_shows() {
    let mut screen = screen();
    insta::assert_snapshot!("top_tools", drawn(&mut screen, 100, 20));
    press(&mut screen, "2");
    insta::assert_snapshot!("top_servers", drawn(&mut screen, 100, 20));
    press(&mut screen, "3");
    insta::assert_snapshot!("top_queue", drawn(&mut screen, 100, 20));
    press(&mut screen, "\t");
    insta::assert_snapshot!("top_events", drawn(&mut screen, 100, 10));
}

#[test]
fn help_and_details_lie_above_the_table_and_close_again() {
    let mut screen = screen();
    let before = drawn(&mut screen, 100, 24);
    press(&mut screen, "?");
    insta::assert_snapshot!("top_help", drawn(&mut screen, 100, 24));
    press(&mut screen, "x");
    assert_eq!(drawn(&mut screen, 100, 24), before);
    press(&mut screen, "2\n");
    insta::assert_snapshot!("top_details", drawn(&mut screen, 100, 24));
    press(&mut screen, "\u{1b}1");
    assert_eq!(drawn(&mut screen, 100, 24), before);
}

#[test]
fn trouble_comes_first_and_every_column_sorts_both_ways() {
    let mut screen = screen();
    assert_eq!(names(&screen), ["web__find", "web__search", "web__fetch"], "by breaker");
    press(&mut screen, "ss");
    assert_eq!(names(&screen)[0], "web__fetch", "by calls");
    press(&mut screen, "S");
    assert_eq!(names(&screen), ["web__find", "web__search", "web__fetch"]);
    press(&mut screen, "s");
    assert_eq!(names(&screen)[0], "web__search", "by share of errors");
}

#[test]
fn a_filter_holds_for_rows_and_events_until_it_is_dropped() {
    let mut screen = screen();
    press(&mut screen, "/FETCH\n");
    assert_eq!(names(&screen), ["web__fetch"]);
    assert_eq!(screen.log().count(), 1);
    assert!(drawn(&mut screen, 100, 20).contains("only what contains \"FETCH\""));
    press(&mut screen, "\u{1b}");
    assert_eq!(names(&screen).len(), 3);
    press(&mut screen, "/nothing such\n");
    assert!(drawn(&mut screen, 100, 20).contains("nothing contains this text; Esc shows all"));
}

#[test]
fn the_row_that_is_chosen_stays_chosen_when_the_rows_move() {
    let mut screen = screen();
    press(&mut screen, "↓");
    assert_eq!(screen.chosen().unwrap().key, "web__search");
    press(&mut screen, "S");
    screen.hear(told());
    assert_eq!(screen.chosen().unwrap().key, "web__search");
    assert_eq!(press(&mut screen, "r"), Done::Change(Change::Reset("web__search".to_owned())));
}

#[test]
fn what_cannot_be_taken_back_is_asked_for_and_only_y_means_yes() {
    let mut screen = screen();
    let tool = || "web__find".to_owned();
    assert_eq!(press(&mut screen, "a"), Done::Change(Change::Force(tool(), "auto")));
    assert_eq!(press(&mut screen, "o"), Done::Nothing);
    let asked = drawn(&mut screen, 100, 20);
    assert!(asked.contains("Refuse all calls of web__find?  y: yes, any other key: no"), "{asked}");
    assert_eq!(press(&mut screen, "n"), Done::Nothing);
    assert!(drawn(&mut screen, 100, 20).contains("nothing was changed"));
    assert_eq!(press(&mut screen, "cy"), Done::Change(Change::Force(tool(), "closed")));
    assert_eq!(press(&mut screen, "2Ry"), Done::Change(Change::Restart("gone".to_owned())));
    assert_eq!(press(&mut screen, "3dy"), Done::Change(Change::Drop("q2".to_owned())));
    assert_eq!(press(&mut screen, "t"), Done::Change(Change::Retry("q2".to_owned())));
    assert_eq!(press(&mut screen, "1d"), Done::Nothing, "no write stands here");
}

#[test]
fn a_gateway_that_is_away_is_told_and_what_was_known_stays() {
    let mut screen = Screen::new("127.0.0.1:7333");
    screen.hear(News::Lost("no gateway answers".to_owned()));
    let told_first = drawn(&mut screen, 100, 20);
    assert!(told_first.contains("AWAY, trying again: no gateway answers"), "{told_first}");
    screen.hear(told());
    assert!(drawn(&mut screen, 100, 20).contains("  live\n"));
    screen.hear(News::Lost("no gateway answers".to_owned()));
    let told_later = drawn(&mut screen, 100, 20);
    assert!(told_later.contains("AWAY, trying again (what is shown is old)"), "{told_later}");
    assert!(told_later.contains("web__search"), "{told_later}");
}

#[test]
fn any_size_of_terminal_is_drawn_and_no_list_is_without_end() {
    let mut screen = screen();
    for number in 0..2000 {
        screen.hear(News::Event(format!("event {number}"), String::new()));
    }
    assert_eq!(screen.events.len(), 500);
    for (width, height) in [(1, 1), (2, 3), (20, 5), (80, 24), (300, 90)] {
        for keys in ["1", "2", "3", "4", "1\n", "?", "x/a", "\u{1b}"] {
            press(&mut screen, keys);
            drawn(&mut screen, width, height);
        }
    }
}
