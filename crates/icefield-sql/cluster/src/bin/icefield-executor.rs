//! The program `icefield-executor`.

use std::process::ExitCode;

/// Queries allocate and free large buffers in many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    icefield_cluster::executor()
}
