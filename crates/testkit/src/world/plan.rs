//! What a history consists of: the settings, servers and clients of a world, and the steps that are
//! played in it.
//!
//! All of it is data that a seed determines, so that a history can be printed, played again and
//! made smaller.

use std::fmt;

/// Milliseconds.
pub type Ms = u64;

/// Which protocol a server or a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// `initialize` and sessions.
    Legacy,
    /// Every request stands alone.
    Modern,
}

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// Streamable HTTP on loopback.
    Http,
    /// A child on its pipes.
    Stdio,
}

/// A server of a world. Its name is `s` and its place.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// How it is reached.
    pub face: Face,
    /// What it speaks.
    pub era: Era,
    /// One child for all clients.
    pub shared: bool,
    /// How long it says nothing after it was started.
    pub slow_start: Ms,
    /// A lost session is told under the id of the call, and not under none.
    pub names_the_call: bool,
}

/// How a client comes to its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `seawall serve`, all servers at `/mcp`.
    Merged,
    /// `seawall run` around this server, which is a child.
    Run(usize),
}

/// What a client does when a server asks it something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// Answers after so long.
    Answers(Ms),
    /// Says that it cannot be asked.
    Refuses,
    /// Says nothing.
    Ignores,
}

/// A client of a world. Its name is `c` and its place.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// What it speaks.
    pub era: Era,
    /// How it comes to its tools.
    pub way: Way,
    /// Whether it sends `Authorization`, and so is the same caller after a reconnect.
    pub has_identity: bool,
    /// What it does with questions.
    pub manners: Manners,
}

/// The settings of the gateway that differ from world to world.
#[derive(Clone, Debug)]
pub struct SettingsPlan {
    /// The first delay before a server that is away is tried again.
    pub reconnect: Ms,
    /// What becomes of a call whose client has gone: `cancel` or `finish`.
    pub on_abandon: &'static str,
    /// Whether there is a store.
    pub store: bool,
    /// Whether servers are called with names that all share (`/mcp`), or each alone (`/mcp/s0`).
    pub alone: bool,
}

/// What a tool does with what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// `read_note`
    Read,
    /// `make_note`
    Write,
}

/// What a server does with one attempt. All of them execute the call first, and note it; but
/// `Refuse` and `Forget`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Answers.
    Answer,
    /// Answers after so long.
    Late(Ms),
    /// Answers, with so many bytes more.
    Large(usize),
    /// Answers twice.
    Twice,
    /// Answers under ids that nobody used, and then rightly.
    WrongId,
    /// Answers with an HTTP status and this body; on a pipe with an error of the protocol.
    Status(u16, &'static str),
    /// Answers with an error of the protocol.
    Error(i64, &'static str),
    /// Answers with the tool's own error.
    ToolError(&'static str),
    /// Answers with something that is no message.
    Garbage,
    /// Cuts the connection; a child dies.
    Cut,
    /// Says nothing any more.
    Hang,
    /// Asks the client this method first, and answers when it was answered.
    Ask(&'static str),
    /// Asks the client this method, and says nothing whatever comes.
    AskAndHang(&'static str),
    /// Does not execute it: the session is not known.
    Forget,
    /// Does not execute it: 429.
    Refuse,
}

/// How a client leaves a request that it does not want to wait for any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It says nothing, and goes on reading without interest.
    Silently,
    /// It ends the connection; on a pipe it says nothing.
    Dropping,
    /// It cancels; a modern client on HTTP does it by ending the connection.
    Cancelling,
}

/// One round of asking: the same call, once or several times at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// How many at once.
    pub times: usize,
    /// After how long the client leaves, and how; `None`: it waits for the answer.
    pub leaves: Option<(Ms, Leave)>,
    /// It begins a new session before.
    pub reconnects: bool,
    /// It reads what comes a little at a time.
    pub reads_slowly: bool,
    /// It asks at once, and not when the first has been unanswered long enough to be the same
    /// intent.
    pub hastes: bool,
}

/// Something a client wants done once.
#[derive(Clone, Debug)]
pub struct Intent {
    /// Its name, which the arguments carry.
    pub name: String,
    /// Who.
    pub client: usize,
    /// Who else makes the very same call at the same time, for itself.
    pub twin: Option<usize>,
    /// At which server.
    pub server: usize,
    /// With which tool.
    pub effect: Effect,
    /// What the server does with the first attempt, the second, …; the last one holds for all that
    /// follow.
    pub fates: Vec<Fate>,
    /// The rounds of asking.
    pub rounds: Vec<Round>,
}

/// What befalls a server, for a while or once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Its process dies, or all of its connections are cut.
    Dies,
    /// Nobody is there for so long.
    Away(Ms),
    /// It takes everything and says nothing for so long; a child is stopped.
    Hangs(Ms),
    /// It forgets all sessions.
    Forgets,
    /// It answers lists with an error for so long: of the protocol, or an HTTP status.
    ListFails(Ms, u16),
    /// It has one tool more, or not any more, and says so.
    ListChanges,
}

/// What is done to the gateway; it is started again at the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL.
    Killed,
    /// SIGTERM.
    Terminated,
}

/// One step.
#[derive(Clone, Debug)]
pub enum What {
    /// A client wants something.
    Intend(Intent),
    /// A client asks which tools there are.
    List(usize),
    /// A client begins a new session.
    Reconnect(usize),
    /// The wrapper of a client on pipes is killed.
    KillWrapper(usize),
    /// A server has trouble.
    Trouble(usize, Trouble),
    /// The gateway is hit, and away for so long.
    Blow(Blow, Ms),
}

/// A step and when it begins, counted from the start.
#[derive(Clone, Debug)]
pub struct Step {
    /// When.
    pub at: Ms,
    /// What.
    pub what: What,
}

/// All that a seed determines.
#[derive(Clone, Debug)]
pub struct History {
    /// Where it comes from.
    pub seed: u64,
    /// The gateway's settings.
    pub settings: SettingsPlan,
    /// The servers.
    pub servers: Vec<ServerPlan>,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// The steps.
    pub steps: Vec<Step>,
}

impl fmt::Display for History {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(to, "seed {}: {:?}", self.seed, self.settings)?;
        for (place, server) in self.servers.iter().enumerate() {
            writeln!(to, "  s{place}: {server:?}")?;
        }
        for (place, client) in self.clients.iter().enumerate() {
            writeln!(to, "  c{place}: {client:?}")?;
        }
        for step in &self.steps {
            match &step.what {
                What::Intend(intent) => {
                    let Intent { name, client, twin, server, effect, fates, .. } = intent;
                    let twin = twin.map(|twin| format!(" and c{twin}")).unwrap_or_default();
                    writeln!(
                        to,
                        "  {:>5} c{client}{twin} {effect:?} {name} at s{server}, which does {fates:?}",
                        step.at
                    )?;
                    for round in &intent.rounds {
                        writeln!(to, "          {round:?}")?;
                    }
                }
                other => writeln!(to, "  {:>5} {other:?}", step.at)?,
            }
        }
        Ok(())
    }
}
