//! `pando top`, from its flags to its end.

use std::io::{self, IsTerminal, Write};

use pando_sync::thread;
use pando_sync::time::Duration;

use super::connection::Trouble;
use super::figures::Figures;
use super::sample::Sample;
use super::watch::Asker;
use super::{plain, screen};
use crate::command_line::TopFlags;
use crate::failure::{Code, Failure};
use crate::output;
use crate::quantity::parse_duration;
use crate::target::Target;

/// Shortest time between two samples.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Longest time between two samples: a day.
const INTERVAL_MAX: Duration = Duration::from_secs(86_400);

/// Shows a running server.
///
/// # Errors
/// The server does not answer and no terminal view waits for it, or the terminal cannot be used.
pub(crate) fn run(flags: &TopFlags) -> Result<(), Failure> {
    let interval = parse_duration(&flags.interval)
        .map_err(|what| Failure::usage(format!("--interval: {what}")))?;
    if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        let text = format!("--interval: '{}' is not from 100ms to 24h", flags.interval);
        return Err(Failure::usage(text));
    }
    let target = Target::of(&flags.target);
    let count = match flags.once {
        true => Some(1),
        false => flags.count,
    };
    if count.is_none() && io::stdout().is_terminal() {
        return screen::run(&target, interval);
    }
    print(&target, interval, count)
}

fn failure(target: &Target, trouble: &Trouble) -> Failure {
    let code = match trouble {
        Trouble::Lost(_) => Code::Io,
        Trouble::Refused(_) => Code::Usage,
    };
    Failure::new(code, format!("{target}: {trouble}"))
}

/// Prints figures `count` times, or until nobody reads them. Attempts that reached no server count.
fn print(target: &Target, interval: Duration, count: Option<u64>) -> Result<(), Failure> {
    let mut asker = Asker::new(target.clone());
    let mut before: Option<Sample> = None;
    // The first sample only shows the state and does not count: rates need two.
    let mut result = asker.ask();
    let mut done = 0;
    loop {
        match result {
            Err(trouble @ Trouble::Refused(_)) => return Err(failure(target, &trouble)),
            Err(trouble) if before.is_none() => return Err(failure(target, &trouble)),
            Err(trouble) => {
                output::failure(format_args!("{target}: {trouble}; trying again"));
                if Some(done) == count {
                    return Err(failure(target, &trouble));
                }
            }
            Ok(sample) => {
                if done > 0 {
                    let figures = Figures::new(&sample, before.as_ref());
                    let mut text = plain::render(&target.to_string(), &figures);
                    if Some(done) != count {
                        text.push('\n');
                    }
                    let mut out = io::stdout().lock();
                    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
                    match written {
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                        Err(error) => {
                            let text = format!("standard output: {error}");
                            return Err(Failure::new(Code::Io, text));
                        }
                        Ok(()) => {}
                    }
                }
                before = Some(sample);
                if Some(done) == count {
                    return Ok(());
                }
            }
        }
        thread::sleep(interval);
        done += 1;
        result = asker.ask();
    }
}
