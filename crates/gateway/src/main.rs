//! The `seawall` command.

use std::process::ExitCode;

use seawall_gateway::cli;
use seawall_gateway::{descriptors, log};

fn main() -> ExitCode {
    let cli = match cli::parsed() {
        Ok(cli) => cli,
        Err(code) => {
            log::flush();
            return code;
        }
    };
    if let Some(code) = cli::begin(&cli) {
        return code;
    }
    descriptors::raise();
    let code = match cli::runtime(&cli) {
        Ok(runtime) => {
            let code = runtime.block_on(cli::run(cli));
            // A terminal is read by a thread that cannot be called off.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            log::error(&format!("cannot start: {error}"));
            ExitCode::FAILURE
        }
    };
    log::flush();
    code
}
