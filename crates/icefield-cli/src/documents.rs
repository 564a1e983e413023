//! `icefield completions` and `man`: shell completions and man pages, generated from the command line's help texts.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap_complete::Shell;

use icefield_console::destination::Destination;
use icefield_console::failure::{Failure, Outcome};
use icefield_console::terminal::shown_path;

/// Examples for `completions --help`.
pub const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  icefield completions bash > ~/.local/share/bash-completion/completions/icefield
  icefield completions zsh > ~/.zfunc/_icefield
  icefield completions fish > ~/.config/fish/completions/icefield.fish";

/// Examples for `man --help`.
pub const MAN_EXAMPLES: &str = "\
Examples:
  icefield man ~/.local/share/man/man1
  icefield man . && man ./icefield-load.1";

/// Print completions for a shell
#[derive(clap::Args, Debug)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct CompletionsArgs {
    /// Generate for this shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Write man pages, one per command
#[derive(clap::Args, Debug)]
#[command(after_help = MAN_EXAMPLES)]
pub struct ManArgs {
    /// Write to this directory, which is created if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Runs `completions` for the command line `command`.
pub fn completions(args: &CompletionsArgs, mut command: clap::Command) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "icefield", &mut text);
    let mut stdout = io::stdout();
    stdout.write_all(&text)?;
    stdout.flush()?;
    Ok(true)
}

/// Runs `man` for the command line `command`.
pub fn man(args: &ManArgs, command: clap::Command) -> Outcome {
    fs::create_dir_all(&args.dir).map_err(|error| Failure::io(&args.dir, &error))?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let pages = pages(&command, &args.dir)?;
    writeln!(io::stdout(), "{}: {pages} pages", shown_path(&args.dir))?;
    Ok(true)
}

/// Writes the man page of a command and those of its subcommands. Returns the number of pages.
fn pages(command: &clap::Command, dir: &Path) -> Result<u64, Failure> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let page = clap_mangen::Man::new(command.clone());
    let path = dir.join(page.get_filename());
    let mut file = Destination::create(&path, &[])?;
    let title = clap_mangen::Man::new(command.clone()).title(name.to_uppercase());
    title.render(&mut file).map_err(|error| Failure::io(&path, &error))?;
    file.finish()?;
    let mut pages_written = 1;
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        pages_written += pages(subcommand, dir)?;
    }
    Ok(pages_written)
}
