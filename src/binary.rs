//! What a service binary does, whichever plugins it was built with.

use std::process::ExitCode;

use clap::Parser;
use punctual_sdk::Plugin;

use crate::cli::Cli;
use crate::plugins::Plugins;

/// The whole of `punctual`, with plugins of one's own beside its own: reads the command line and does what it says.
///
/// A plugin is off until `PUNCTUAL_PLUGINS`, or `plugins.enabled` in the configuration, names it. A service binary is a
/// crate that depends on `punctual` and on the plugins' crates, with this as its `main.rs`:
///
/// ```no_run
/// use std::process::ExitCode;
/// # mod greeting {
/// #     pub struct Greeting;
/// #     impl punctual_sdk::Plugin for Greeting {
/// #         fn name(&self) -> &'static str {
/// #             "greeting"
/// #         }
/// #         fn handlers(&self) -> Vec<(&'static str, Box<dyn punctual_sdk::Handler>)> {
/// #             Vec::new()
/// #         }
/// #     }
/// # }
///
/// fn main() -> ExitCode {
///     punctual::main_with(vec![Box::new(greeting::Greeting)])
/// }
/// ```
pub fn main_with(plugins: Vec<Box<dyn Plugin>>) -> ExitCode {
    crate::tls::provide();
    let cli = Cli::parse();
    let plugins = match Plugins::with(plugins) {
        Ok(plugins) => plugins,
        Err(error) => return refuse(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&format!("cannot start: {error}")),
    };
    let done = runtime.block_on(cli.run(plugins));
    // Connections that outlived the drain deadline end here.
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(error) => refuse(&format!("{error:#}")),
    }
}

fn refuse(reason: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("punctual: {reason}");
    ExitCode::FAILURE
}
