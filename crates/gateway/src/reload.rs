//! Decides when the configuration is read again, and what is told of it: at SIGHUP, when a file it
//! was read from changes, and when an operator asks. A file with mistakes changes nothing.

mod watched;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::config::stamp::FileStamps;
use crate::config::{Config, SecretTexts};
use crate::gateway::{ConfigChange, Gateway};
use crate::runtime::log;

/// Reads the configuration as the command line names it; an error has one problem a line.
type LoadConfig = Box<dyn Fn() -> Result<Config, String> + Send + Sync>;
type ReloadHook = Box<dyn Fn(Map<String, Value>) + Send + Sync>;

/// Why the configuration is read again.
#[derive(Debug)]
pub(crate) enum ReloadCause {
    /// The process got SIGHUP.
    Signal,
    /// An operator asked for it.
    Operator,
    /// This file has changed.
    File(PathBuf),
}

impl fmt::Display for ReloadCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal => f.write_str("SIGHUP"),
            Self::Operator => f.write_str("an operator asks"),
            Self::File(path) => write!(f, "{} has changed", path.display()),
        }
    }
}

/// Reads the configuration of a gateway again.
pub(crate) struct Reloader {
    gateway: Arc<Gateway>,
    load: LoadConfig,
    history: Mutex<ReloadHistory>,
    /// The files of the configuration, as they were when it was last read.
    read: Mutex<FileStamps>,
    when_reloaded: OnceLock<ReloadHook>,
}

/// How reading the configuration ended so far.
#[derive(Clone, Debug)]
pub(crate) struct ReloadHistory {
    /// How often it was read again and taken, whether or not it had changed.
    pub taken: u64,
    /// How often it was refused.
    pub refused: u64,
    /// Why the last one was refused; `None` if it was taken.
    pub error: Option<String>,
    /// When the configuration in force was read, in milliseconds since 1970.
    pub in_force_since: u64,
    /// When it was last tried, in milliseconds since 1970.
    pub tried: u64,
    /// Settings that wait for a restart.
    pub needs_restart: Vec<&'static str>,
}

impl Reloader {
    /// Reads with `load`; nothing is read yet.
    pub(crate) fn new(gateway: &Arc<Gateway>, load: LoadConfig) -> Arc<Self> {
        let now = now();
        let history = ReloadHistory {
            taken: 0,
            refused: 0,
            error: None,
            in_force_since: now,
            tried: now,
            needs_restart: Vec::new(),
        };
        Arc::new(Self {
            gateway: Arc::clone(gateway),
            load,
            history: Mutex::new(history),
            read: Mutex::new(gateway.now().config.files.clone()),
            when_reloaded: OnceLock::new(),
        })
    }

    /// Registers what is run with every change and every refusal: the one event about it.
    pub(crate) fn when_reloaded(&self, then: ReloadHook) {
        let _once = self.when_reloaded.set(then);
    }

    fn lock(&self) -> MutexGuard<'_, ReloadHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How reading the configuration ended so far.
    pub(crate) fn history(&self) -> ReloadHistory {
        self.lock().clone()
    }

    /// Reads the configuration again, because of `why`. An error changes nothing.
    pub(crate) async fn reload(
        self: &Arc<Self>,
        why: &ReloadCause,
    ) -> Result<ConfigChange, String> {
        let reader = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || (reader.load)()).await;
        let read = read.unwrap_or_else(|error| Err(format!("it could not be read: {error}")));
        let changed = match read {
            Ok(config) => {
                self.note_read(config.files.clone());
                log::hide(SecretTexts::of_all(&config));
                self.gateway.change(&config).await
            }
            Err(problems) => Err(problems),
        };
        match &changed {
            Ok(change) => self.took(why, change),
            Err(error) => self.refuses(why, error),
        }
        changed
    }

    fn took(&self, why: &ReloadCause, change: &ConfigChange) {
        let is_news = {
            let mut history = self.lock();
            let is_news = !change.is_nothing()
                || history.error.is_some()
                || history.needs_restart != change.needs_restart;
            history.taken += 1;
            history.error = None;
            history.tried = now();
            history.in_force_since = history.tried;
            history.needs_restart.clone_from(&change.needs_restart);
            is_news
        };
        // A file may be rewritten every few seconds without a change.
        if is_news || !matches!(why, ReloadCause::File(_)) {
            log::line(&format!("{why}: the configuration was read again: {change}"));
        }
        if is_news {
            let Value::Object(mut told) = change.json() else { return };
            told.insert("event".to_owned(), json!("config_changed"));
            told.insert("why".to_owned(), json!(why.to_string()));
            self.tell(told);
        }
    }

    fn refuses(&self, why: &ReloadCause, error: &str) {
        {
            let mut history = self.lock();
            history.refused += 1;
            history.tried = now();
            history.error = Some(error.to_owned());
        }
        log::error(&format!("{why}: the configuration is refused, the one before stays in force:"));
        error.lines().for_each(log::error);
        let told = json!({"event": "config_refused", "why": why.to_string(), "error": error});
        if let Value::Object(told) = told {
            self.tell(told);
        }
    }

    fn tell(&self, told: Map<String, Value>) {
        if let Some(then) = self.when_reloaded.get() {
            then(told);
        }
    }
}

/// Milliseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "a person is told when it was; nothing is decided by it"
)]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
