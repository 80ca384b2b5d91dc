//! Where commands spend their time: the waits of the running command, and the profile of the last
//! command of a connection that asks for profiles.
//!
//! Only commands that wait touch this module, and those of connections that have turned profiles
//! on (decision 048).

use pando_sync::time::{Duration, Instant, now};
use pandodb::{Profile, Wait};

/// The waits of a connection's running command.
#[derive(Debug, Default)]
pub(crate) struct CommandWaits {
    profile: Profile,
    /// What it waits for now, and since when.
    parked: Option<(Wait, Instant)>,
}

impl CommandWaits {
    /// Begins a wait for `wait`; `is_first`: the first one of this command.
    pub(crate) fn park(&mut self, wait: Wait, is_first: bool) {
        if is_first {
            *self = Self::default();
        }
        self.parked = Some((wait, now()));
    }

    /// Ends the wait, as the command has another turn.
    pub(crate) fn unpark(&mut self) {
        if let Some((wait, since)) = self.parked.take() {
            self.profile.add_wait(wait, since.elapsed());
        }
    }

    /// Returns a line with what the command waited for.
    pub(crate) fn text(&self) -> String {
        let waits = Wait::ALL.iter().filter_map(|wait| {
            let spent = self.profile.waited(*wait);
            let us = spent.time.as_micros();
            (spent.count > 0).then(|| format!("{}={}:{us}us", wait.name(), spent.count))
        });
        waits.collect::<Vec<_>>().join(" ")
    }
}

/// Profiles of a connection that has turned them on.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    /// Profile of the runs of the current command so far.
    running: Profile,
    runs: u64,
    /// Profile of the command that finished last.
    last: Option<CommandProfile>,
}

/// Where a command spent its time.
#[derive(Debug, Clone)]
pub(crate) struct CommandProfile {
    /// Its name, with its subcommand.
    pub(crate) command: String,
    /// Time from its beginning to its reply, without the wait for the log.
    pub(crate) elapsed: Duration,
    /// Number of its runs, complete or not.
    pub(crate) runs: u64,
    /// Where its runs and its waits spent their time.
    pub(crate) profile: Profile,
    /// When its reply began to wait for the log.
    gated: Option<Instant>,
}

impl Profiles {
    /// Adds a run of the command, or of its commit.
    pub(crate) fn add_run(&mut self, profile: &Profile) {
        self.running.add(profile);
        self.runs += 1;
    }

    /// Drops the runs of a command that is not to be recorded.
    pub(crate) fn forget_runs(&mut self) {
        (self.running, self.runs) = (Profile::default(), 0);
    }

    /// Finishes a command. `waited` has its waits, if there were any.
    pub(crate) fn end(&mut self, command: &str, elapsed: Duration, waited: Option<&CommandWaits>) {
        let mut profile = std::mem::take(&mut self.running);
        if let Some(waited) = waited {
            profile.add(&waited.profile);
        }
        self.last = Some(CommandProfile {
            command: command.to_owned(),
            elapsed,
            runs: std::mem::take(&mut self.runs),
            profile,
            gated: None,
        });
    }

    /// Notes that the reply of the last command begins to wait for the log.
    pub(crate) fn gate(&mut self) {
        if let Some(last) = &mut self.last {
            last.gated = Some(now());
        }
    }

    /// Ends that wait: the log is durable as far as all replies so far need.
    pub(crate) fn open_gate(&mut self) {
        if let Some(last) = &mut self.last
            && let Some(since) = last.gated.take()
        {
            last.profile.add_wait(Wait::Durable, since.elapsed());
        }
    }

    /// Returns the profile of the command that finished last.
    pub(crate) fn last(&self) -> Option<&CommandProfile> {
        self.last.as_ref()
    }
}
