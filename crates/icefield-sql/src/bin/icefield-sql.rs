//! The program `icefield-sql`.

use std::process::ExitCode;

fn main() -> ExitCode {
    icefield_sql::commands::main()
}
