//! Decides how `seawall top` runs: what the gateway tells and what is typed come in, the screen is
//! drawn anew, until `q` or a signal.
//!
//! `feed` reads the admin API and sends changes, `told` makes rows of what it answers, `screen`
//! holds what is shown and decides what a key does, `draw` draws, `terminal` takes the terminal and
//! gives it back.

mod draw;
mod feed;
mod screen;
mod terminal;
mod told;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use ratatui::crossterm::event::{Event, KeyEventKind};

use self::feed::Feed;
use self::screen::{Done, Screen};
use self::terminal::OwnTerminal;
use crate::remote::client::AdminClient;
use crate::runtime::stop::StopSignal;

/// Most messages of the gateway that are taken before the screen is drawn again.
const AT_ONCE: usize = 256;

/// Shows a gateway until the user has seen enough.
pub(crate) async fn run(client: AdminClient) -> io::Result<()> {
    let mut screen = Screen::new(client.address());
    let mut stop = StopSignal::new()?;
    let mut terminal = OwnTerminal::take()?;
    let mut feed = Feed::start(Arc::new(client));
    loop {
        terminal.draw(|frame| draw::draw(frame, &mut screen))?;
        tokio::select! {
            heard = feed.next() => {
                let more = std::iter::from_fn(|| feed.waiting()).take(AT_ONCE);
                std::iter::once(heard).chain(more).for_each(|heard| screen.hear(heard));
            }
            typed = terminal.typed() => match typed {
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => match screen.press(key) {
                    Done::Nothing => {}
                    Done::Quit => return Ok(()),
                    Done::Change(change) => feed.change(change),
                },
                Some(_) => {}
                None => return Ok(()),
            },
            () = stop.caught() => return Ok(()),
        }
    }
}
