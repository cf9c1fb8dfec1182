//! `punctual`: the service with the plugins of `src/plugins.rs`.

use std::process::ExitCode;

/// A task's way through the actors is many small allocations, made in one thread and freed in another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    punctual::main_with(Vec::new())
}
