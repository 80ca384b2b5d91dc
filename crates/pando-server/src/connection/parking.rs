//! A command that waits is parked. What it and the commands behind it will need is asked for at the
//! same time.

use pando_stats::Ticker;
use pandodb::nonblocking::Pending;

use crate::connection::Connection;
use crate::connection::lookahead::{KEYS_MAX, Outlook};
use crate::connection::loop_data::Turn;
use crate::connection::running::Running;
use crate::context::Kind;
use crate::context::progress::Progress;

/// What of a command that waits is looked at, in front of what comes behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// Its keys. A command of many keys may have more than one lookahead covers.
    Keys,
    /// What EXEC has queued. Its run begins again behind each wait: beside others that keep the
    /// device busy, too, it asks for many pages at once.
    Queued,
    /// Nothing: it reads its keys in their order, and asks for their pages itself.
    Nothing,
}

impl Own {
    fn of(running: &Running, progress: &Progress) -> Self {
        match &progress.key_order {
            Some(order) if order.goes_on() => Self::Nothing,
            _ if running.command.kind == Kind::Exec => Self::Queued,
            _ => Self::Keys,
        }
    }
}

impl Connection {
    /// As [`Connection::park`], for a command that still has to read; counts its miss.
    pub(super) fn park_read(
        &mut self,
        turn: &mut Turn<'_>,
        running: &mut Running,
        pending: Pending,
    ) -> pandodb::Result<()> {
        running.waited = true;
        if pending.is_for_page() && !running.missed {
            running.missed = true;
            if let Some(data) = turn.data.as_ref() {
                data.reactor.count_misses(1);
            }
        }
        self.park(turn, running, pending)
    }

    /// Registers for the wake-up, and has the engine fetch the pages of the commands behind this
    /// one, too.
    pub(super) fn park(
        &mut self,
        turn: &mut Turn<'_>,
        running: &mut Running,
        pending: Pending,
    ) -> pandodb::Result<()> {
        turn.shared.statistics.tick(Ticker::CommandsSuspended, 1);
        let is_first = !std::mem::replace(&mut running.parked, true);
        if let Some(buffers) = &mut self.buffers {
            buffers.waits.park(pending.wait(), is_first);
        }
        let data = turn
            .data
            .as_mut()
            .expect("only the engine makes commands wait");
        data.reactor.park(pending, &self.waker)?;
        self.look_ahead(turn, running)
    }

    /// Requests pages that the command and those behind it will need, unless that was done already
    /// and the device has enough to do.
    fn look_ahead(&mut self, turn: &mut Turn<'_>, running: &Running) -> pandodb::Result<()> {
        let limits = self.limits(turn);
        let Some(data) = turn.data.as_mut() else {
            return Ok(());
        };
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let own = Own::of(running, &buffers.progress);
        let reads_again = own == Own::Queued && !running.committing;
        let is_first = self.position >= self.looked_until;
        if is_first {
            self.looked_keys = 0;
        } else if !reads_again && !data.reactor.is_hungry() {
            return Ok(());
        }
        // Those behind EXEC were asked for while it read its keys in their order.
        let looked_keys = match own {
            Own::Queued => 0,
            Own::Keys | Own::Nothing => self.looked_keys,
        };
        let most = KEYS_MAX.min(data.reactor.prefetch_max());
        let rest = &buffers.input[buffers.offset..];
        let outlook = Outlook {
            commands: turn.commands,
            engine: &data.engine,
            session: &self.session,
            limits: &limits,
            keys_max: most.saturating_sub(looked_keys),
            keys_done: running.batch.as_ref().map_or(0, |batch| batch.reads_done()),
            queued: buffers.progress.waiting_index,
        };
        let arguments = buffers.parser.arguments(rest);
        let has_own = match own {
            Own::Keys => is_first || arguments.len() > 2,
            Own::Queued => true,
            Own::Nothing => false,
        };
        let own = has_own.then_some((running.command, arguments));
        let ahead = usize::try_from(self.looked_until.saturating_sub(self.position));
        let begin = running.consumed.max(ahead.unwrap_or(usize::MAX));
        let behind = rest.get(begin..).unwrap_or_default();
        let prefetch = &mut data.prefetch;
        let looked = prefetch.run(&outlook, &mut data.reactor, own, behind)?;
        self.looked_until = self.position + (begin + looked.bytes) as u64;
        self.looked_keys += looked.keys;
        Ok(())
    }

    /// Removes the keys of a command that has finished from the count of keys ahead.
    pub(super) fn pass_looked(&mut self, running: &Running) {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        let keys = running.command.keys.of(arguments).count();
        self.looked_keys = self.looked_keys.saturating_sub(keys);
    }
}
