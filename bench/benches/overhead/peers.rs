//! Where the programs are that are measured: our own is built, peers are taken as `bench/peers`
//! installed them.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use seawall_bench::Setup;

/// The programs.
pub(crate) struct Places {
    /// The server and the relay.
    pub(crate) side: PathBuf,
    /// Ours, as it is released.
    pub(crate) seawall: PathBuf,
    /// Envoy, if it is installed.
    pub(crate) envoy: Option<PathBuf>,
    /// mcp-proxy, if it is installed.
    pub(crate) mcp_proxy: Option<PathBuf>,
    /// Where configurations may be written.
    pub(crate) scratch: PathBuf,
}

/// Builds the gateway and finds the rest.
pub(crate) fn find() -> Setup<Places> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let target = root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let peers =
        env::var_os("SEAWALL_PEERS_DIR").map_or_else(|| target.join("peers"), |dir| root.join(dir));
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Set for this bench; build scripts that look at them would run again.
    env::vars_os().map(|(name, _)| name).filter(is_of_package).for_each(|name| {
        cargo.env_remove(name);
    });
    let built = cargo
        .args(["build", "--release", "--locked", "--package", "seawall-gateway", "--target-dir"])
        .arg(&target)
        .current_dir(&root)
        .status()?;
    if !built.success() {
        return Err("the gateway could not be built".into());
    }
    let scratch = target.join("overhead");
    std::fs::create_dir_all(&scratch)?;
    Ok(Places {
        side: env!("CARGO_BIN_EXE_seawall-bench-side").into(),
        seawall: target.join("release/seawall"),
        envoy: envoy(&peers),
        mcp_proxy: Some(peers.join("mcp-proxy/bin/mcp-proxy")).filter(|path| path.is_file()),
        scratch,
    })
}

fn is_of_package(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// The program itself, not the package's script that starts it.
fn envoy(peers: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(peers.join("envoy/lib")).ok()?;
    let program = |version: PathBuf| version.join("site-packages/envoy/_bin/envoy");
    versions.flatten().map(|version| program(version.path())).find(|path| path.is_file())
}

impl Places {
    /// A line for each peer that is not there.
    pub(crate) fn missing(&self) -> impl Iterator<Item = String> {
        let peers = [("envoy", &self.envoy), ("mcp-proxy", &self.mcp_proxy)];
        let missing = peers.into_iter().filter(|(_, path)| path.is_none()).map(|(name, _)| name);
        missing.map(|name| format!("skipped: {name} is not installed; bench/peers installs it"))
    }
}
