//! Decides the gateway's settings: a config file, or a command line, becomes a checked [`Config`].
//!
//! Text → tree (`json`, `toml`, `yaml`) → raw servers (`native`, `import`, `agentgateway`) →
//! resolved servers (`resolve`).
//! Either everything is right and there is a [`Config`], or every problem is reported at once.

mod address;
mod admin;
pub(crate) mod agentgateway;
pub(crate) mod audit;
pub(crate) mod chaos;
pub(crate) mod chaos_script;
pub(crate) mod client_files;
mod command;
pub(crate) mod duration;
mod env;
mod env_file;
mod expand;
pub(crate) mod ext_authz;
mod headers;
mod hide;
pub(crate) mod identity;
mod import;
mod json;
pub(crate) mod layer;
pub(crate) mod layers;
mod limit;
pub(crate) mod log;
mod mentions;
mod name;
mod native;
pub(crate) mod pass_header;
pub(crate) mod place;
pub(crate) mod policy;
pub(crate) mod prefix;
mod problem;
mod raw;
mod reconnect;
mod resolve;
pub(crate) mod rules;
mod schema;
mod secret;
mod settings;
mod size;
mod source;
pub(crate) mod stamp;
mod startup;
mod store;
mod suggest;
pub(crate) mod telemetry;
mod toml;
mod tree;
mod words;
pub(crate) mod written;
mod yaml;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, Uri};

pub(crate) use self::admin::AdminConfig;
use self::audit::AuditConfig;
pub(crate) use self::chaos::ChaosConfig;
pub(crate) use self::ext_authz::{ALL_HEADERS, ExtAuthzConfig, ListFilter, ServerAuthz};
pub(crate) use self::hide::SecretTexts;
pub(crate) use self::identity::{ApiKeyConfig, IdentityConfig, JwksSource, JwtConfig};
use self::log::LogConfig;
pub(crate) use self::pass_header::PassedHeader;
use self::problem::ConfigPlace;
pub(crate) use self::problem::{Problem, Problems};
pub(crate) use self::reconnect::ReconnectConfig;
pub use self::schema::schema;
pub(crate) use self::secret::Secret;
pub use self::startup::StartupConfig;
pub(crate) use self::store::RedisConfig;
pub(crate) use self::suggest::nearest;
use self::telemetry::TelemetryConfig;
use crate::config::layers::{PolicyRules, ServerRules};
use crate::protocol::hash;

use self::expand::Variables;
use self::source::FileFormat;
use self::stamp::{FileStamp, FileStamps};
use self::tree::{ConfigField, ConfigNode};

/// The checked configuration of a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The address that clients connect to.
    pub listen: SocketAddr,
    /// The servers, in the order of the file; disabled ones are left out.
    pub servers: Vec<ServerConfig>,
    /// How long calls in flight may take to finish when the gateway stops.
    pub grace: Duration,
    /// The largest message that the gateway takes from a client, in bytes.
    pub max_request: usize,
    /// How many bytes of large answers may wait for their clients.
    pub answer_memory: usize,
    /// How long a client's session may be idle before its servers are stopped.
    pub session_idle: Duration,
    /// Further `Host` values to accept, in lower case.
    pub allowed_hosts: Vec<String>,
    /// Further `Origin` values to accept, in lower case.
    pub allowed_origins: Vec<String>,
    /// The policy settings.
    pub rules: PolicyRules,
    /// How servers are loaded at startup.
    pub startup: StartupConfig,
    /// The folder of the durable queue, whose writes must survive a crash.
    pub store: Option<PathBuf>,
    /// The Redis that replicas share; `None`: this gateway knows of no other.
    pub redis: Option<RedisConfig>,
    /// The audit log; `None`: calls are not noted.
    pub audit: Option<AuditConfig>,
    /// Where spans and metrics go; `None`: nowhere.
    pub telemetry: Option<TelemetryConfig>,
    /// How log lines are written.
    pub log: LogConfig,
    /// The admin server, if there is one.
    pub admin: Option<AdminConfig>,
    /// Who may call; `None`: everybody who reaches the address.
    pub identity: Option<IdentityConfig>,
    /// The external authorizer of the gateway, if there is one.
    pub ext_authz: Option<ExtAuthzConfig>,
    /// The file this was read from.
    pub source: Option<PathBuf>,
    /// The files it was read from, its own among them, and those that values are missing from.
    pub(crate) files: FileStamps,
    /// Settings of the file that are skipped.
    pub warnings: Vec<Problem>,
}

/// One server, and how to reach it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Its name: 1 to 64 of `A-Z a-z 0-9 _ - .`, without `__`, unique in its config.
    pub name: String,
    /// How to reach it.
    pub transport: Transport,
    /// Values from variables and files in its URL or arguments, which may be secret.
    pub filled: Vec<Secret>,
    /// Whether one child serves all client sessions.
    pub shared: bool,
    /// Whether the gateway refuses to start if the server cannot be loaded.
    pub required: bool,
    /// The policy settings for its tools.
    pub rules: ServerRules,
    /// When its process runs.
    pub life: ServerLifetime,
    /// Who may use it.
    pub access: ServerAccess,
    /// The faults that are added to its calls, for tests.
    pub chaos: Option<ChaosConfig>,
}

impl ServerConfig {
    /// Whether connections to this server can go on as connections to the `other`.
    pub(crate) fn connects_like(&self, other: &Self) -> bool {
        let of = |it: &Self| {
            let Self { name, transport, filled, shared, life, chaos, .. } = it.clone();
            (name, transport, filled, shared, life, chaos, it.access.pass_headers.clone())
        };
        of(self) == of(other)
    }

    /// Whether this is the same program, or the same address, as the `other`, perhaps with other
    /// credentials.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        let at = |it: &Self| match &it.transport {
            Transport::Stdio { command, args, cwd, .. } => {
                Some((command.clone(), args.clone(), cwd.clone()))
            }
            Transport::Http { url, .. }
            | Transport::Sse { url, .. }
            | Transport::Ws { url, .. } => Some((url.to_string(), Vec::new(), None)),
            Transport::Incomplete { .. } => None,
        };
        self.name == other.name && at(self).is_some() && at(self) == at(other)
    }
}

/// Who may use a server, and what it gets of its client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerAccess {
    /// The external authorizer that decides.
    pub authz: ServerAuthz,
    /// The scopes that a client's token must have.
    pub scopes: Vec<String>,
    /// The headers of the client that it gets.
    pub pass_headers: Vec<PassedHeader>,
    /// The variable that holds its bearer token, if the configuration names one.
    pub token_variable: Option<String>,
}

/// When a server's process runs, and how it is reconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLifetime {
    /// Whether the first call starts the server, not the client's handshake; applies if its info is
    /// cached.
    pub lazy: bool,
    /// How long without a call until the server is stopped; the next call starts it again.
    pub idle_stop: Option<Duration>,
    /// How long a child that its client left unused is kept warm for the next client.
    pub keep_warm: Duration,
    /// How a server that is away is reconnected.
    pub reconnect: ReconnectConfig,
}

impl Default for ServerLifetime {
    fn default() -> Self {
        let keep_warm = Duration::from_secs(60);
        Self { lazy: false, idle_stop: None, keep_warm, reconnect: ReconnectConfig::default() }
    }
}

/// How a server is reached.
#[derive(Clone, PartialEq)]
pub enum Transport {
    /// A child process that speaks on its stdin and stdout.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its variables, each name once.
        env: Vec<(String, Secret)>,
        /// The folder it starts in; absolute if it comes from a file.
        cwd: Option<PathBuf>,
        /// Whether it also gets the gateway's whole environment.
        inherit_env: bool,
    },
    /// Streamable HTTP.
    Http {
        /// `http` or `https`.
        url: Uri,
        /// Sent with every request, each name once.
        headers: Vec<(HeaderName, Secret)>,
        /// Whether the transport was guessed: a server that refuses it may speak SSE.
        sse_fallback: bool,
    },
    /// HTTP with server-sent events, the predecessor of streamable HTTP.
    Sse {
        /// `http` or `https`.
        url: Uri,
        /// Sent with every request, each name once.
        headers: Vec<(HeaderName, Secret)>,
    },
    /// WebSocket.
    Ws {
        /// `ws` or `wss`.
        url: Uri,
        /// Sent with the handshake, each name once.
        headers: Vec<(HeaderName, Secret)>,
    },
    /// None yet: the configuration refers to missing variables or files.
    Incomplete {
        /// The missing variables and files, with the places that refer to them.
        lacking: Vec<Problem>,
    },
}

impl Transport {
    /// The key of this server in the catalog cache: the same for the same server. One program may
    /// be several servers that differ in their variables, so those are part of the key. One URL may
    /// be several servers too, by its headers; but tokens come and go, so there the server's name
    /// is part of the key instead.
    pub(crate) fn remembered_as(&self, name: &str) -> String {
        let mut identity = Vec::new();
        let (url, cwd);
        match self {
            Self::Stdio { command, args, cwd: folder, env, .. } => {
                cwd = format!("{folder:?}");
                identity.extend([command.as_str(), &cwd]);
                identity.extend(args.iter().map(String::as_str));
                identity.extend(
                    env.iter().flat_map(|(variable, value)| [variable.as_str(), value.expose()]),
                );
            }
            Self::Http { url: at, .. } | Self::Sse { url: at, .. } | Self::Ws { url: at, .. } => {
                url = at.to_string();
                identity.extend([name, &url]);
            }
            Self::Incomplete { .. } => identity.push(name),
        }
        hash::key(&identity.iter().map(|part| part.as_bytes()).collect::<Vec<_>>())
    }

    /// The folder that the process is to start in, if it does not exist.
    pub fn missing_folder(&self) -> Option<&Path> {
        match self {
            Self::Stdio { cwd: Some(cwd), .. } if !cwd.is_dir() => Some(cwd),
            _ => None,
        }
    }

    /// The missing variables and files that the configuration refers to.
    pub(crate) fn lacking(&self) -> &[Problem] {
        if let Self::Incomplete { lacking } = self { lacking } else { &[] }
    }

    /// The same in one line, for clients; the advice is left out, for it is meant for the operator,
    /// who reads it in the log and in `check`.
    pub(crate) fn why_incomplete(&self) -> Option<String> {
        let what =
            |problem: &Problem| problem.text.split("; ").next().unwrap_or_default().to_owned();
        let told: Vec<String> = self
            .lacking()
            .iter()
            .map(|problem| format!("{} ({})", what(problem), problem.field))
            .collect();
        (!told.is_empty()).then(|| told.join(", "))
    }
}

/// Arguments, paths and queries may hold secrets, so only the program or the host is shown.
impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, .. } => {
                f.debug_tuple("Stdio").field(command).finish_non_exhaustive()
            }
            Self::Http { url, .. } => {
                f.debug_tuple("Http").field(&url.host()).finish_non_exhaustive()
            }
            Self::Sse { url, .. } => {
                f.debug_tuple("Sse").field(&url.host()).finish_non_exhaustive()
            }
            Self::Ws { url, .. } => f.debug_tuple("Ws").field(&url.host()).finish_non_exhaustive(),
            Self::Incomplete { lacking } => f.debug_tuple("Incomplete").field(lacking).finish(),
        }
    }
}

/// Reads Seawall's own file, or the MCP file of another client unchanged. Starts no process; `env`
/// is the only environment that it reads.
pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Problems> {
    load_file(path, env, true)
}

/// Like [`load`], for a server that is given elsewhere: the file may hold policies only.
pub(crate) fn load_policies(
    path: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, Problems> {
    load_file(path, env, false)
}

fn load_file(
    path: &Path,
    env: &dyn Fn(&str) -> Option<String>,
    needs_servers: bool,
) -> Result<Config, Problems> {
    let mut problems = Problems::default();
    // Taken before the file is read: it may change meanwhile.
    let stamp = FileStamp::of(path);
    let config = problems.keep(source::read(path)).and_then(|file| {
        if file.others_can_write {
            problems.push(Problem::of_file(format!(
                "others can change the commands this file starts; chmod go-w {}",
                path.display()
            )));
        }
        read_text(path, &file.text, env, needs_servers, &mut problems)
    });
    // A user who has to mend the file anyway is told of everything at once, missing variables
    // included.
    if problems.count() > 0 {
        let lacking = config.iter().flat_map(Config::lacking);
        lacking.for_each(|problem| problems.lack(problem.clone()));
    }
    let config = config.map(|mut config| {
        config.files.insert(path.to_owned(), stamp);
        config
    });
    let mut problems = problems.in_file(path);
    let warnings = problems.take_warnings();
    problems.finish(config.map(|config| Config { warnings, ..config.in_file(path) }))
}

/// The file to read: the one asked for, `$SEAWALL_CONFIG`, `./seawall.toml`,
/// `~/.config/seawall/config.toml`. The first two need not exist; [`load`] reports that.
pub(crate) fn find(
    explicit: Option<&Path>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<PathBuf> {
    if let Some(path) = explicit {
        return Some(path.to_owned());
    }
    if let Some(path) = env("SEAWALL_CONFIG").filter(|path| !path.is_empty()) {
        return Some(PathBuf::from(path));
    }
    let at_home =
        expand::home(env).map(|home| Path::new(&home).join(".config/seawall/config.toml"));
    // A file without permission to look at it counts as existing: `load` reports why it cannot be
    // read.
    [Some(PathBuf::from("seawall.toml")), at_home]
        .into_iter()
        .flatten()
        .find(|path| path.try_exists().unwrap_or(true))
}

fn parsed(text: &str, format: FileFormat, problems: &mut Problems) -> Option<ConfigNode> {
    match format {
        FileFormat::Json => problems.keep(json::parse(text)),
        FileFormat::Toml => toml::parse(text, problems),
        FileFormat::Yaml => problems.keep(yaml::parse(text)),
    }
}

fn read_text(
    path: &Path,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
    needs_servers: bool,
    problems: &mut Problems,
) -> Option<Config> {
    let format = source::format(path, text);
    let root = parsed(text, format, problems)?;
    let root = ConfigField::root(&root);
    let list_key = import::list_key(&root, format);
    let list = root.find(list_key.unwrap_or("servers")).filter(ConfigField::is_table);
    let scope = Variables::new(path, env);
    let (mut settings, raw) = match list_key {
        _ if agentgateway::is_its(&root, format) => agentgateway::read(&root, &scope, problems),
        Some(key) => import::read(&root, key, limit::is_in_seconds(path), problems),
        None => native::read(&root, needs_servers, problems),
    };
    let section = if list_key.is_some() { root.find(import::SECTION) } else { Some(root) };
    if let (true, Some(section), Some(servers)) = (needs_servers, section, list) {
        mentions::check(&section, &servers, problems);
    }
    let scope_lines: Vec<(String, Option<usize>)> = raw
        .iter()
        .filter_map(|it| Some((it.name.clone(), it.scopes.first()?.place.own_line())))
        .collect();
    let servers: Vec<ServerConfig> =
        raw.into_iter().filter_map(|server| resolve::server(server, &scope, problems)).collect();
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    let identity = settings.identity.take().map(|raw| raw.resolve(&scope, &names, problems));
    let with_scopes = servers.iter().find(|server| !server.access.scopes.is_empty());
    if let Some(server) = with_scopes.filter(|_| identity.is_none()) {
        let place = ConfigPlace::named(&format!("servers.{}.scopes", server.name));
        let text = "needs [identity]: without it nobody has a token, and everybody may call";
        let line = scope_lines.iter().find(|(name, _)| *name == server.name);
        let line = line.and_then(|(_, line)| *line);
        problems.push(Problem { line, ..place.problem(text) });
    }
    let ext_authz = settings.ext_authz.take().and_then(|raw| raw.resolve(&scope, problems));
    let raw_store = settings.store.take();
    let store = raw_store.as_ref().and_then(|raw| raw.folder(&scope, problems));
    let redis = raw_store.as_ref().and_then(|raw| raw.redis(&scope, problems));
    let audit = settings.audit.take().and_then(|raw| raw.resolve(&scope, problems));
    let telemetry = settings.telemetry.take().and_then(|raw| raw.resolve(&scope, problems));
    let admin = settings.take_admin(&scope, problems);
    let mut config = Config {
        admin,
        identity,
        ext_authz,
        source: Some(path.to_owned()),
        files: scope.files(),
        store,
        redis,
        audit,
        telemetry,
        ..settings.into_config(servers)
    };
    problems.keep(config.take_env(env));
    Some(config)
}

impl Config {
    /// Whether there is a place where writes wait for their server.
    pub(crate) fn has_queue(&self) -> bool {
        self.store.is_some() || self.redis.is_some()
    }

    /// Applies environment variables, which override the file: they are nearer to the user who
    /// starts the gateway.
    pub(crate) fn take_env(&mut self, env: &dyn Fn(&str) -> Option<String>) -> Result<(), Problem> {
        let tiers = std::mem::take(&mut self.rules.tiers).from_env(env);
        self.rules.tiers =
            tiers.map_err(|invalid| ConfigPlace::named(&invalid.field).problem(invalid.problem))?;
        self.rules.messages.debug |= seawall::debug_from_env(env);
        Ok(())
    }

    /// All missing variables and files that the config file refers to.
    fn lacking(&self) -> impl Iterator<Item = &Problem> {
        let of_admin = self.admin.iter().flat_map(|admin| &admin.lacking);
        of_admin.chain(self.servers.iter().flat_map(|server| server.transport.lacking()))
    }

    /// Adds the file's path to the problems about missing variables and files.
    fn in_file(mut self, path: &Path) -> Self {
        let of_admin = self.admin.iter_mut().flat_map(|admin| &mut admin.lacking);
        let of_servers = self.servers.iter_mut().filter_map(|server| match &mut server.transport {
            Transport::Incomplete { lacking } => Some(lacking),
            _ => None,
        });
        let all = of_admin.chain(of_servers.flatten());
        all.for_each(|problem| problem.file = Some(path.to_owned()));
        self
    }

    /// This config's server under the settings of another config, and under that config's rules for
    /// a server of this name, if it has one.
    #[must_use]
    pub fn under(self, settings: Config) -> Self {
        let rules_of = |name: &str| {
            settings.servers.iter().find(|server| server.name == name).map(|known| &known.rules)
        };
        let servers = self.servers.into_iter().map(|server| ServerConfig {
            rules: rules_of(&server.name).unwrap_or(&server.rules).clone(),
            ..server
        });
        Self { servers: servers.collect(), ..settings }
    }
}
