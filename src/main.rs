//! `punctual`: reads the command line and does what it says.

use std::process::ExitCode;

use clap::Parser;
use punctual::cli::Cli;

/// A task's way through the actors is many small allocations, made in one thread and freed in another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Redis and HTTP clients use the process's default; there is none until it is installed.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("punctual: a TLS provider was installed before ours");
    }
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("punctual: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(cli.run());
    // Connections that outlived the drain deadline end here.
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("punctual: {error:#}");
            ExitCode::FAILURE
        }
    }
}
