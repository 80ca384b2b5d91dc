//! Where commands spend their time: what the running one has waited for, and what the last one of a
//! connection that asks for profiles did.
//!
//! Only a command that waits tells anything; the others do not look here, unless their connection
//! has turned profiles on.

use pando_sync::time::{Duration, Instant, now};
use pandodb::{Profile, Wait};

/// What the running command of a connection has waited for.
#[derive(Debug, Default)]
pub(crate) struct CommandWaits {
    profile: Profile,
    /// What it waits for now, and since when.
    parked: Option<(Wait, Instant)>,
}

impl CommandWaits {
    /// The command begins to wait for `wait`; for the first time if `is_first`.
    pub(crate) fn park(&mut self, wait: Wait, is_first: bool) {
        if is_first {
            *self = Self::default();
        }
        self.parked = Some((wait, now()));
    }

    /// The command has another turn.
    pub(crate) fn unpark(&mut self) {
        if let Some((wait, since)) = self.parked.take() {
            self.profile.add_wait(wait, since.elapsed());
        }
    }

    /// What was waited for, as a line.
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
    /// Of the runs of the command so far.
    running: Profile,
    runs: u64,
    /// Of the command that has ended last.
    last: Option<CommandProfile>,
}

/// Where a command spent its time.
#[derive(Debug, Clone)]
pub(crate) struct CommandProfile {
    pub(crate) command: String,
    /// From its beginning to its reply, the wait for the log not included.
    pub(crate) elapsed: Duration,
    /// How often it ran, wholly or in part.
    pub(crate) runs: u64,
    pub(crate) profile: Profile,
    /// When its reply began to wait for the log.
    gated: Option<Instant>,
}

impl Profiles {
    /// A run of the command or of its commit is over.
    pub(crate) fn add_run(&mut self, profile: &Profile) {
        self.running.add(profile);
        self.runs += 1;
    }

    /// The command that has run is not to be kept.
    pub(crate) fn forget_runs(&mut self) {
        (self.running, self.runs) = (Profile::default(), 0);
    }

    /// A command is over. `waited` is what it waited for, if it did.
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

    /// The reply of the last command waits for the log.
    pub(crate) fn gate(&mut self) {
        if let Some(last) = &mut self.last {
            last.gated = Some(now());
        }
    }

    /// The log has what all replies so far wait for.
    pub(crate) fn open_gate(&mut self) {
        if let Some(last) = &mut self.last
            && let Some(since) = last.gated.take()
        {
            last.profile.add_wait(Wait::Durable, since.elapsed());
        }
    }

    /// Of the command that has ended last.
    pub(crate) fn last(&self) -> Option<&CommandProfile> {
        self.last.as_ref()
    }
}
