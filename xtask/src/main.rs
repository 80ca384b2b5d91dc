//! Developer commands: `cargo xtask COMMAND`.
//!
//! It owns nothing of the product, and is in none of its builds. Each command says on standard
//! error what it does, and exits with 0 only if all of its steps ran and succeeded.

#![forbid(unsafe_code)]

mod audit;
mod generated_mutants;
mod instructions;
mod mutants;
mod nightly;
mod quick;
mod run;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask COMMAND
  tidy                       rules about the text of the project and its crate graph
  ci                         all that must hold before a change is merged (.ci/run)
  ci --quick                 format, tidy, clippy, and the tests of the crates that changed since
                             main, or that are not committed there
  nightly [--minutes N] [--only TEXT]
                             what takes longer: sanitizers, seeds, models, fuzzing, planted bugs;
                             or the steps whose names contain TEXT
  audit [--cores N | --ablations]
                             cache-line transfers of the engine on N simulated cores, or of the
                             ablations of its reads on 1 to 64
  instructions [--only TEXT] [--engine PROGRAM] [--pando PROGRAM]
                             instructions of the operations that matter most, and their bounds
  mutants [--only TEXT] [--at 3,17-20] [--part K/N] [--list]
                             plants known bugs and checks that their tests fail
  mutants --in-diff BASE | --in-file FILE
                             plants the bugs that cargo-mutants thinks of, in what has changed
                             since BASE or in one file";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("--help", &[][..]),
    };
    let result = run::project_root().and_then(|root| match command {
        "tidy" => tidy::check(&root),
        "ci" => match rest {
            [] => run::run(run::command("bash", &root).arg(".ci/run")),
            [quick] if quick == "--quick" => quick::check(&root),
            [other, ..] => Err(format!("unknown option '{other}'")),
        },
        "nightly" => nightly::run_command(&root, rest),
        "audit" => audit::run_command(&root, rest),
        "instructions" => instructions::run_command(&root, rest),
        "mutants" => generated_mutants::run_command(&root, rest),
        "--help" | "-h" | "help" => {
            eprintln!("{USAGE}");
            Ok(())
        }
        other => Err(format!("unknown command '{other}'\n{USAGE}")),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {command}: {error}");
            ExitCode::FAILURE
        }
    }
}
