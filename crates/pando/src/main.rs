//! The `pando` binary: command line, configuration, messages at start and at end.
//!
//! Reading order: `command_line`, `layers` and `settings` (file, environment and flags become one
//! set of values), `serve`, `log`, `inspect` and `tree_stat` (`stat`, `verify`), `compact`,
//! `salvage`, `dump`, `import`, `export`, `top`, `bench`. Libraries do the work; this binary starts
//! it, and turns errors into a sentence and an exit code.

#![forbid(unsafe_code)]

mod atomic_file;
mod backend;
mod bench;
mod command_line;
mod compact;
#[cfg(test)]
mod completeness;
mod dump;
mod export;
mod failure;
mod import;
mod inspect;
mod layers;
mod log;
mod log_format;
mod log_sink;
mod memory;
mod nearest;
mod output;
mod progress;
mod quantity;
mod rdb_mark;
mod redis;
mod refused;
mod rewrite;
mod salvage;
mod serve;
mod settings;
mod target;
mod top;
mod tree_stat;

use std::process::ExitCode;

use clap::Parser;

use command_line::{Command, CommandLine};
use failure::{Code, Failure};
use signal_hook::consts::SIGXFSZ;
use signal_hook::iterator::Signals;

/// Has each panic end the process: what the thread has left behind is not known. Unwinding itself
/// stays possible, since errors of Lua unwind through functions of Rust.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

fn main() -> ExitCode {
    abort_on_panic();
    // A write beyond the limit of a file's length then fails, and its error says why; by default
    // the signal ends the process. If it cannot be taken over, that goes on.
    let _file_limit = Signals::new([SIGXFSZ]);
    let (arguments, as_redis) = match redis::separate(std::env::args_os().collect()) {
        Ok(separated) => separated,
        Err(failure) => return fail(&failure),
    };
    if as_redis.version {
        output::line(format_args!("{}", version()));
        return Code::Fine.into();
    }
    let result = match CommandLine::try_parse_from(arguments) {
        Ok(line) => run(line, &as_redis),
        Err(error) => {
            // Help and version are not errors; they go to standard output.
            let code = if error.use_stderr() {
                Code::Usage
            } else {
                Code::Fine
            };
            // If the pipe is closed, nobody is left to tell.
            let _ = error.print();
            return code.into();
        }
    };
    match result.and_then(|()| output::check()) {
        Ok(()) => Code::Fine.into(),
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    output::failure(&failure.text);
    failure.code.into()
}

/// Returns the line of `--version`. Tools look for the version of Redis in it, and some take the
/// first number for it.
fn version() -> String {
    format!(
        "Redis server v={} bits=64, by PandoDB {}",
        pando_server::REDIS_VERSION,
        env!("CARGO_PKG_VERSION")
    )
}

fn run(line: CommandLine, as_redis: &redis::Given) -> Result<(), Failure> {
    match line.command {
        None => serve::run(&line.serve, as_redis),
        Some(Command::Serve(flags)) => serve::run(&flags, as_redis),
        Some(Command::Stat(what)) => inspect::stat(&what),
        Some(Command::Verify(what)) => inspect::verify(&what),
        Some(Command::Top(flags)) => top::run(&flags),
        Some(Command::Compact(flags)) => compact::run(&flags),
        Some(Command::Salvage(flags)) => salvage::run(&flags),
        Some(Command::Dump(flags)) => dump::dump(&flags),
        Some(Command::Load(flags)) => dump::load(&flags),
        Some(Command::Import(flags)) => import::run(&flags),
        Some(Command::Export(flags)) => export::run(&flags),
        Some(Command::Bench { layer }) => bench::run(layer),
    }
}
