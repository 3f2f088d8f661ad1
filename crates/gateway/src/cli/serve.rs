//! Runs a gateway from its start to its end: opens listeners and store in order, and shuts down.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{SignalKind, signal};

use super::config_args::{tell_lacking, variable, warn};
use super::{CommandEnd, UNREACHABLE, USAGE};
use crate::admin;
use crate::call::required;
use crate::config::{Config, SecretTexts};
use crate::frontend::guard::OriginGuard;
use crate::frontend::http::HttpListener;
use crate::frontend::stdio;
use crate::gateway::Gateway;
use crate::platform;
use crate::queue::{self, QueueBounds, QueueStore, StoreTrouble};
use crate::reload::{ReloadCause, Reloader};
use crate::runtime::log;
use crate::runtime::plural::counted;
use crate::store::catalog_cache::CatalogCache;
use crate::store::redis::CALL_WAIT;

/// The catalog cache: in the store's folder if there is a store, else in the user's state folder.
pub(super) fn catalog_cache(config: &Config, is_off: bool) -> CatalogCache {
    let folder = catalog_folder(config).filter(|_| !is_off);
    if folder.is_none() && !is_off {
        log::warn(
            "neither XDG_STATE_HOME nor HOME is set: nothing is remembered, also no write that is under way when seawall is killed",
        );
    }
    CatalogCache::new(folder)
}

/// The folder of the catalog cache.
pub(super) fn catalog_folder(config: &Config) -> Option<PathBuf> {
    let folder = config.store.as_ref().map(|store| store.join("catalog"));
    folder.or_else(|| CatalogCache::default_folder(&variable))
}

async fn gateway(
    config: &Config,
    catalog_cache: CatalogCache,
    store: Option<QueueStore>,
) -> Result<Arc<Gateway>, (u8, String)> {
    tell_lacking(config);
    let gateway = Gateway::new(config, catalog_cache, store)
        .map_err(|error| (UNREACHABLE, format!("cannot prepare connections: {error}")))?;
    if let Some(audit) = &config.audit {
        // An operator who wants every call noted wants no gateway that cannot note them.
        gateway.audit().open(audit).map_err(|error| {
            (USAGE, format!("cannot write the audit log {}: {error}", audit.path.display()))
        })?;
    }
    if let Some(telemetry) = &config.telemetry {
        gateway
            .trace(telemetry)
            .map_err(|error| (USAGE, format!("cannot export telemetry: {error}")))?;
    }
    // Ends the orphans of a gateway that crashed; the start does not wait for it.
    gateway.lifecycle.spawn(platform::end_orphans());
    Ok(gateway)
}

/// Opens the configured store; a store that cannot be read fails the start, before any server runs.
async fn store(config: &Config) -> Result<Option<QueueStore>, StoreTrouble> {
    if let Some(redis) = &config.redis {
        left_behind(config).await;
        let opened = QueueStore::open_redis(redis, QueueBounds::default(), CALL_WAIT).await;
        return opened.map(Some).map_err(|why| StoreTrouble::Redis { why });
    }
    let Some(folder) = config.store.clone() else { return Ok(None) };
    in_file(folder).await.map(Some)
}

/// Opens the queue in a file.
#[expect(clippy::disallowed_methods, reason = "what waits in the store expires by wall time")]
pub(super) async fn in_file(folder: PathBuf) -> Result<QueueStore, StoreTrouble> {
    let opened = tokio::task::spawn_blocking(move || {
        QueueStore::open(&folder, QueueBounds::default(), SystemTime::now())
    })
    .await;
    opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Warns of writes that wait in a file although the queue is in Redis by now: nothing sends them.
async fn left_behind(config: &Config) {
    let Some(folder) = config.store.clone() else { return };
    if !matches!(queue::probe(&folder), Ok(Some(_))) {
        return;
    }
    let Ok(file) = in_file(folder).await else { return };
    let waiting = file.changes().borrow().waiting;
    file.close().await;
    if let (1.., Some(path)) = (waiting, file.path()) {
        let (path, waiting) = (path.display(), counted(waiting, "write"));
        log::warn(&format!(
            "{path} holds {waiting} that nothing sends while [store] redis is set: `seawall queue move --to redis` moves them"
        ));
    }
}

/// How the configuration is read again; `None`: not at all.
pub(super) type ReadAgain = Option<Box<dyn Fn() -> Result<Config, String> + Send + Sync>>;

pub(super) async fn on_stdio(
    config: &Config,
    read_again: ReadAgain,
    catalog_cache: CatalogCache,
) -> CommandEnd {
    log::configure(&config.log);
    log::hide(SecretTexts::of_all(config));
    warn(config);
    // A client's only server must not fail because another client's gateway holds the store, or the
    // port.
    let store = match store(config).await {
        Err(in_use @ StoreTrouble::InUse { .. }) => {
            log::warn(&format!("{in_use}; here no write waits for its server"));
            None
        }
        opened => opened.map_err(|trouble| (USAGE, trouble.to_string()))?,
    };
    let gateway = gateway(config, catalog_cache, store).await?;
    let reloader = read_again.map(|load| Reloader::new(&gateway, load));
    let mut stop = StopSignals::new(reloader.clone())?;
    if let Err((_, why)) = open_admin(&gateway, reloader.as_ref(), config).await {
        log::warn(&why);
    }
    loaded_required(&gateway, &mut stop).await?;
    watch(&gateway, reloader.as_ref());
    let (served, grace) = (Arc::clone(&gateway), config.grace);
    // A task like those of the calls: the runtime gives what it runs itself a turn before each of
    // them, and a client that sends without pause would keep its own calls from going on.
    let mut serving = tokio::spawn(async move {
        stdio::serve(&served, platform::input(), platform::output(), grace).await;
    });
    let has_left = tokio::select! {
        _ = &mut serving => true,
        () = stop.asked() => false,
    };
    // Also when the client has left: a queued write may be in flight.
    let drain = gateway.lifecycle.drain(config.grace, stop.asked());
    if has_left {
        drain.await;
    } else {
        // A client that ends its wrapper by a signal may read no answer that follows, and a pipe
        // does not tell.
        gateway.all().journal.leave();
        let closed = async {
            drain.await;
            gateway.lifecycle.closing.cancel();
        };
        // The answers are written before the process ends.
        let (_ended, ()) = tokio::join!(serving, closed);
    }
    end(&gateway).await;
    Ok(())
}

pub(super) async fn on_http(
    config: &Config,
    read_again: ReadAgain,
    catalog_cache: CatalogCache,
) -> CommandEnd {
    log::configure(&config.log);
    log::hide(SecretTexts::of_all(config));
    warn(config);
    let store = store(config).await.map_err(|trouble| (USAGE, trouble.to_string()))?;
    let gateway = gateway(config, catalog_cache, store).await?;
    let reloader = read_again.map(|load| Reloader::new(&gateway, load));
    let mut stop = StopSignals::new(reloader.clone())?;
    open_admin(&gateway, reloader.as_ref(), config).await?;
    loaded_required(&gateway, &mut stop).await?;
    watch(&gateway, reloader.as_ref());
    let guard = OriginGuard {
        hosts: config.allowed_hosts.clone(),
        origins: config.allowed_origins.clone(),
        is_any_host: config.identity.is_some() && !config.listen.ip().is_loopback(),
        has_pages: false,
    };
    let listener = HttpListener::bind(Arc::clone(&gateway), config.listen, guard).await;
    let listener = listener
        .map_err(|error| (UNREACHABLE, format!("cannot listen on {}: {error}", config.listen)))?;
    let address = listener.address().unwrap_or(config.listen);
    let now = gateway.now();
    let names: Vec<&str> = now.servers.iter().map(|server| server.name.as_str()).collect();
    log::line(&format!("listening on http://{address}/mcp, servers: {}", names.join(", ")));
    let serving = tokio::spawn(listener.serve());
    stop.asked().await;
    log::line("going down: calls under way may finish; a second signal ends them");
    gateway.lifecycle.drain(config.grace, stop.asked()).await;
    gateway.lifecycle.closing.cancel();
    let _in_time = tokio::time::timeout(Duration::from_secs(5), serving).await;
    end(&gateway).await;
    Ok(())
}

/// Opens the admin API, if it is configured, before any server is loaded, so that operators can
/// watch the load.
async fn open_admin(
    gateway: &Arc<Gateway>,
    reloader: Option<&Arc<Reloader>>,
    config: &Config,
) -> CommandEnd {
    let Some(admin) = &config.admin else { return Ok(()) };
    let bound = admin::AdminListener::bind(gateway, reloader, config).await;
    let bound = bound.map_err(|error| {
        (UNREACHABLE, format!("cannot listen on {} (admin): {error}", admin.listen))
    })?;
    if let Some(listener) = bound {
        log::line(&format!("admin at http://{}", listener.address().unwrap_or(admin.listen)));
        gateway.lifecycle.spawn(listener.serve());
    }
    Ok(())
}

/// Reads the configuration again when one of its files changes.
fn watch(gateway: &Gateway, reloader: Option<&Arc<Reloader>>) {
    if let Some(reloader) = reloader {
        gateway.lifecycle.spawn(Arc::clone(reloader).watch());
    }
}

/// Loads the required servers before the first client is served.
async fn loaded_required(gateway: &Gateway, stop: &mut StopSignals) -> CommandEnd {
    let route = gateway.all();
    let loaded = tokio::select! {
        loaded = required::load(&route) => loaded,
        () = stop.asked() => Err("stopped while the required servers were loaded".to_owned()),
    };
    if loaded.is_err() {
        end(gateway).await;
    }
    loaded.map_err(|text| (UNREACHABLE, text))
}

pub(super) async fn end(gateway: &Gateway) {
    // Stops deliveries and waiting calls, also if the client's end caused the shutdown.
    gateway.lifecycle.draining.cancel();
    gateway.lifecycle.closing.cancel();
    gateway.all().close().await;
    gateway.lifecycle.settle().await;
    gateway.lifecycle.end().await;
    // Last: calls and deliveries that end above still write their outcome to the store.
    gateway.audit().close().await;
    gateway.tracer().close().await;
    if let Some(store) = gateway.store() {
        store.close().await;
    }
}

/// SIGTERM and SIGINT: the first begins a graceful shutdown, the second ends it at once. SIGHUP
/// reads the configuration again; a gateway without a file only logs it.
pub(super) struct StopSignals {
    hangup: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    reloader: Option<Arc<Reloader>>,
}

impl StopSignals {
    pub(super) fn new(reloader: Option<Arc<Reloader>>) -> Result<Self, (u8, String)> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| (UNREACHABLE, format!("cannot listen for signals: {error}")))
        };
        Ok(Self {
            hangup: listen(SignalKind::hangup())?,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            reloader,
        })
    }

    pub(super) async fn asked(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => match &self.reloader {
                    // In a task of its own: a stop signal does not wait for it.
                    Some(reloader) => {
                        let reloader = Arc::clone(reloader);
                        tokio::spawn(async move { reloader.reload(&ReloadCause::Signal).await });
                    }
                    None => log::line("SIGHUP: `seawall run` does not read its configuration again"),
                },
            }
        }
    }
}
