//! Commands that wait for elements of their keys: BLPOP and its like.
//!
//! The command looks at its keys, in their order. If none has elements it registers with them and
//! looks again, since elements may have come in between; then it waits (`client/waiters`). It
//! takes elements in a transaction of its own, like any other command: somebody who does not wait
//! may come first, and then it waits on, at its old place.
//!
//! XREAD and XREADGROUP wait in the same way, but for that all are woken who wait for a stream, and
//! that IDs such as `$` are those of the first look. In a pipeline run XREADGROUP does not wait: if
//! it finds nothing, it begins again by itself (decision 099).
//!
//! CLIENT UNBLOCK ends the wait (`client/unblocking.rs`). The command ends it itself before it
//! takes anything, or says that its time is over; if it was unblocked meanwhile, it runs again, and
//! its changes are dropped.

use std::ops::Range;

use pando_resp::Writer;
use pando_sync::time::{Duration, Instant, now};

use super::progress::Blocked;
use super::{Context, Interrupted, Run, replies};
use crate::client::unblocking::Unblocked;
use crate::client::waiters::queue_of;
use crate::data::stream_id::StreamId;
use crate::float::parse_seconds;

const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// Longest wait in milliseconds; longer ones are out of range.
const TIMEOUT_MS_MAX: f64 = 9.2e18;

/// What a client that reads streams waits for.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// Entries behind these IDs, one for each key.
    pub(crate) ids: Vec<StreamId>,
    /// When the first of the streams expires, in milliseconds since 1970, if that ends the wait.
    pub(crate) deadline: Option<u64>,
}

impl Context<'_> {
    /// Returns when a command stops waiting that was given the time of argument `at`, in seconds;
    /// `None`: never.
    fn wait_until(&self, at: usize) -> Result<Option<Instant>, Interrupted> {
        let Some(seconds) = parse_seconds(self.argument(at)) else {
            return Err("ERR timeout is not a float or out of range".into());
        };
        let milliseconds = (seconds * 1000.0).ceil();
        if milliseconds > TIMEOUT_MS_MAX {
            return Err("ERR timeout is out of range".into());
        }
        // Less than a millisecond below zero is zero, as in Redis.
        if milliseconds < 0.0 {
            return Err("ERR timeout is negative".into());
        }
        if milliseconds == 0.0 {
            return Ok(None);
        }
        // A time that no clock reaches is never.
        let duration = Duration::try_from_secs_f64(milliseconds / 1000.0).ok();
        Ok(duration.and_then(|duration| now().checked_add(duration)))
    }

    /// Serves the command from the first of the keys at `keys` that has elements: `serve` takes the
    /// place of a key, and returns false if it has none. Otherwise waits, at most for the time of
    /// argument `timeout_at`, and replies with `nothing` when it is over, or inside a transaction,
    /// which must not wait.
    pub(crate) fn serve_or_wait(
        &mut self,
        keys: Range<usize>,
        timeout_at: usize,
        mut serve: impl FnMut(&mut Self, usize) -> Result<bool, Interrupted>,
        nothing: impl FnOnce(&mut Writer<'_>),
    ) -> Run {
        if self.is_unblocked()? {
            nothing(&mut self.reply());
            return Ok(());
        }
        let until = match &self.progress.blocked {
            Some(blocked) => blocked.until,
            None => self.wait_until(timeout_at)?,
        };
        let may_wait = self.exec_index.is_none() && self.session.interactive.is_none();
        let awaited = if may_wait {
            self.awaited(keys.clone())
        } else {
            Vec::new()
        };
        for place in keys.clone() {
            let key = self.argument(place);
            if awaited.iter().any(|other| other == key) || !self.may_serve(key)? {
                continue;
            }
            let served = serve(self, place);
            if matches!(served, Ok(true) | Err(Interrupted::Refused(_))) {
                self.end_wait()?;
            }
            if served? {
                self.progress.waiting = false;
                return Ok(());
            }
        }
        let is_over = until.is_some_and(|until| now() >= until);
        if !may_wait || self.progress.blocked.is_some() && is_over {
            self.end_wait()?;
            nothing(&mut self.reply());
            return Ok(());
        }
        self.wait_for(keys, (until, until), Vec::new())
    }

    /// Serves a command that reads the streams at `keys`. `serve` is told whether the client waits
    /// if there is nothing, and then returns for what; `None`: it has replied. Otherwise waits, at
    /// most for `block` milliseconds (0: for ever), and replies with null when they are over, or if
    /// it must not wait.
    pub(crate) fn read_or_wait(
        &mut self,
        keys: Range<usize>,
        block: Option<u64>,
        serve: impl FnOnce(&mut Self, bool) -> Result<Option<Awaited>, Interrupted>,
    ) -> Run {
        if self.is_unblocked()? {
            self.reply().null_array();
            return Ok(());
        }
        let is_alone = self.exec_index.is_none() && self.session.interactive.is_none();
        let may_wait = block.is_some() && is_alone;
        let mut is_over = false;
        if let Some(blocked) = &self.progress.blocked {
            // From now on it is woken again.
            let _: Vec<Vec<u8>> = blocked.registration.look();
            is_over = blocked.until.is_some_and(|until| now() >= until);
        }
        let waits = may_wait && !is_over;
        let served = serve(self, waits);
        if matches!(served, Ok(None) | Err(Interrupted::Refused(_))) {
            self.end_wait()?;
        }
        let Some(awaited) = served? else {
            self.progress.waiting = false;
            return Ok(());
        };
        if !waits {
            self.end_wait()?;
            self.reply().null_array();
            return Ok(());
        }
        // The commands before it are to be seen by others, who may be waited for.
        if self.is_together {
            return Err(Interrupted::Yield);
        }
        let until = match (&self.progress.blocked, block) {
            (Some(blocked), _) => blocked.until,
            (None, None | Some(0)) => None,
            (None, Some(block)) => now().checked_add(Duration::from_millis(block)),
        };
        let expires = awaited.deadline.and_then(|deadline| {
            let left = deadline.saturating_sub(self.now_ms).saturating_add(1);
            now().checked_add(Duration::from_millis(left))
        });
        let looks_at = until.into_iter().chain(expires).min();
        self.wait_for(keys, (until, looks_at), awaited.ids)
    }

    /// Returns true if another client has ended the wait as if its time was over; an error is the
    /// reply if it has asked for one.
    pub(crate) fn is_unblocked(&self) -> Result<bool, Interrupted> {
        match self.record.unblocking.unblocked() {
            None => Ok(false),
            Some(Unblocked::Timeout) => Ok(true),
            Some(Unblocked::Error) => Err(UNBLOCKED.into()),
        }
    }

    /// Nobody ends the wait from now on; if somebody has meanwhile, the command runs again.
    pub(crate) fn end_wait(&self) -> Run {
        match self.record.unblocking.end_wait() {
            true => Ok(()),
            false => Err(Interrupted::Yield),
        }
    }

    /// Returns the queue of those who wait for values of the command's type in its database.
    fn queue(&self) -> usize {
        let value_type = self.command.value_type;
        queue_of(
            self.session.database,
            value_type.expect("a command that waits has a type"),
        )
    }

    /// Returns those of the keys whose elements are for somebody else, who was woken or has waited
    /// longer.
    fn awaited(&self, keys: Range<usize>) -> Vec<Vec<u8>> {
        if let Some(blocked) = &self.progress.blocked {
            return blocked.registration.look();
        }
        if !self.shared.waiters.any() {
            return Vec::new();
        }
        let queue = self.queue();
        let keys = keys.map(|place| self.argument(place));
        keys.filter(|key| self.shared.waiters.is_awaited(queue, key))
            .map(<[u8]>::to_vec)
            .collect()
    }

    /// Returns false if the command has waited, and the key has a value of another type now: it
    /// waits on. It is refused only if it finds such a value at first.
    fn may_serve(&mut self, key: &[u8]) -> Result<bool, Interrupted> {
        if self.progress.blocked.is_none() {
            return Ok(true);
        }
        let row = self.find_any_head(key)?.row;
        Ok(row.is_none_or(|row| Some(row.value_type) == self.command.value_type))
    }

    /// Registers with the keys, or waits if that is done.
    /// It waits until the first time, and looks again at the second one.
    fn wait_for(
        &mut self,
        keys: Range<usize>,
        (until, looks_at): (Option<Instant>, Option<Instant>),
        ids: Vec<StreamId>,
    ) -> Run {
        if self.progress.blocked.is_none() {
            let (queue, arguments) = (self.queue(), self.arguments);
            // What BLMOVE and BRPOPLPUSH take from the first of their keys goes to the second.
            let target = self.command.keys.of(arguments).nth(keys.len());
            let keys = (queue, keys.map(|place| arguments.at(place)));
            let waiters = &self.shared.waiters;
            let most = self.engine().awaited_bytes_max;
            let Ok(registration) = waiters.register(keys, target, self.waker, most) else {
                return Err(replies::TOO_MANY_AWAITED.into());
            };
            self.record.unblocking.begin_wait();
            self.progress.blocked = Some(Box::new(Blocked {
                until,
                registration,
                ids,
            }));
            // The next run looks again, and reads anew.
            self.progress.waiting = false;
            return Err(Interrupted::Blocked);
        }
        self.record.unblocking.begin_wait();
        self.progress.waiting = true;
        self.progress.deadline = looks_at;
        Err(Interrupted::Blocked)
    }
}
