//! The command line of peers. Exit codes as those of `pando`: 1 usage, 4 input or output, or an
//! engine that failed.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use pando_bench::Error;
use pando_peers::flags::Flags;

fn main() -> ExitCode {
    let flags = match Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) => {
            let code = u8::from(error.use_stderr());
            // Help that cannot be printed has nobody to tell.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match flags.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            match error {
                Error::Option { .. } => ExitCode::from(1),
                _ => ExitCode::from(4),
            }
        }
    }
}
