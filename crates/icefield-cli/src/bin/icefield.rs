//! The program `icefield`.

use std::process::ExitCode;

fn main() -> ExitCode {
    icefield_cli::main()
}
