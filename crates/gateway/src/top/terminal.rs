//! Decides how the terminal is taken and given back: at the end, at an error, and when the program
//! panics.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;

/// How soon the reader of keys sees that nobody wants them any more.
const LOOK: Duration = Duration::from_millis(200);
/// Keys that wait to be taken.
const TYPED_AHEAD: usize = 64;

/// The terminal, as long as it is ours; it is as before when this is dropped.
pub(super) struct OwnTerminal {
    terminal: DefaultTerminal,
    typed: mpsc::Receiver<Event>,
}

impl OwnTerminal {
    /// Takes the terminal. From now on a panic gives it back before it is told.
    pub(super) fn take() -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let (to, typed) = mpsc::channel(TYPED_AHEAD);
        // Made first: if there can be no thread, dropping it gives the terminal back.
        let own = Self { terminal, typed };
        std::thread::Builder::new().name("keys".to_owned()).spawn(move || read(&to))?;
        Ok(own)
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }

    /// The next thing that is typed, or a new size; `None` when the terminal is gone.
    pub(super) async fn typed(&mut self) -> Option<Event> {
        self.typed.recv().await
    }
}

impl Drop for OwnTerminal {
    fn drop(&mut self) {
        let _gone = ratatui::try_restore();
    }
}

/// Reads until nobody listens, or the terminal is gone.
fn read(to: &mpsc::Sender<Event>) {
    while !to.is_closed() {
        let event = match event::poll(LOOK) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let Ok(event) = event else { return };
        if to.blocking_send(event).is_err() {
            return;
        }
    }
}
