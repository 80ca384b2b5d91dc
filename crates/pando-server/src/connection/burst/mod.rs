//! Bursts: GETs or SETs that lie one behind the other in a pipeline, run together (decision 050).
//!
//! ```text
//!   input   GET a  GET b  GET c  SET d 1  SET e 2  INCR f
//!           '---- a burst ---'   '-- a burst ---'  by itself
//! ```
//!
//! A burst means what its commands mean one after the other: those that it cannot run that way
//! it leaves, and they begin by themselves, from the first one on. GETs go down the tree together
//! ([`gets`]); SETs are one transaction ([`sets`]). Only plain ones are taken ([`run`]): the key
//! and the value lie in pages, there are no options, no MULTI, and no reply is an error. What is
//! not in memory ends a burst, and what comes behind is approached carefully ([`allowance`]).

mod allowance;
mod gets;
mod run;
mod sets;

use pandodb::Lsn;

use crate::connection::Connection;
use crate::connection::loop_data::Turn;
use crate::options::Durability;
use crate::times::nanoseconds;

pub(crate) use allowance::Allowance;
pub(crate) use run::Burst;
use run::PlainKind;

/// Commands of a burst that were run.
#[derive(Debug, Clone, Copy)]
struct Done {
    /// From the first one on.
    count: usize,
    hits: u64,
    misses: u64,
    lsn: Option<Lsn>,
    /// What was read may be shown when this is durable.
    shown_from: Option<Lsn>,
    /// The next one waits for a page, or is something else: not for lack of room.
    cut: bool,
}

impl Done {
    const NONE: Self = Self {
        count: 0,
        hits: 0,
        misses: 0,
        lsn: None,
        shown_from: None,
        cut: true,
    };
}

impl Connection {
    /// Runs the command that the parser has found, of `consumed` bytes, with those behind it, if
    /// they are a burst of at most `most` commands. How many were run; none of them if 0.
    #[inline]
    pub(crate) fn burst(&mut self, turn: &mut Turn<'_>, consumed: usize, most: usize) -> usize {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let is_last = buffers.offset + consumed >= buffers.input.len();
        if is_last || !self.allowance.allows_bursts() {
            return 0;
        }
        self.run_burst(turn, most)
    }

    fn run_burst(&mut self, turn: &mut Turn<'_>, most: usize) -> usize {
        let free = self.session.authenticated && self.session.multi.is_none();
        // A profile is of one command.
        let is_profiled = self.session.profiles.is_some();
        let (true, false, Some(data)) = (free, is_profiled, turn.data.as_mut()) else {
            return 0;
        };
        let mut burst = std::mem::take(&mut data.burst);
        let count = match self.gather(turn, &mut burst, most) {
            Some(kind) => self.run_gathered(turn, &mut burst, kind),
            None => 0,
        };
        if let Some(data) = turn.data.as_mut() {
            data.burst = burst;
        }
        count
    }

    fn gather(&self, turn: &Turn<'_>, burst: &mut Burst, most: usize) -> Option<PlainKind> {
        let buffers = self.buffers.as_ref()?;
        let engine = &turn.data.as_ref()?.engine;
        if !buffers.staging.is_empty() {
            return None;
        }
        let rest = &buffers.input[buffers.offset..];
        let most = most.min(self.allowance.most());
        let first = buffers.parser.spans();
        burst.gather(rest, first, engine, &self.limits(turn), most)
    }

    fn run_gathered(&mut self, turn: &mut Turn<'_>, burst: &mut Burst, kind: PlainKind) -> usize {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        buffers.output.hold();
        let done = match kind {
            PlainKind::Get => self.run_gets(turn, burst),
            PlainKind::Set => self.run_sets(turn, burst),
        };
        self.allowance.note(done.count, done.cut);
        if done.count > 0 {
            self.end_burst(turn, burst, kind, done);
        } else {
            let buffers = self.buffers.as_mut().expect("a command is in the buffers");
            buffers.output.take_back();
            buffers.output.release(None);
            buffers.progress.take_back();
        }
        done.count
    }

    /// The first commands of a burst have ended: their replies wait for the log together if they
    /// must, and the input moves on behind them.
    fn end_burst(&mut self, turn: &mut Turn<'_>, burst: &Burst, kind: PlainKind, done: Done) {
        let began = turn.clock;
        turn.read_clock();
        let (count, consumed) = (done.count as u64, burst.end(done.count));
        let (id, command) = kind.of(turn.commands);
        turn.counts.ended(count, done.hits, done.misses);
        turn.counts.ended_together(count);
        let statistics = &turn.shared.statistics;
        // The time of one is its share.
        let ns = nanoseconds(turn.clock.duration_since(began)) / count;
        statistics.commands.called_together(id, ns, count);
        if ns >= turn.shared.settings.watch_ns() {
            let buffers = self.buffers.as_ref().expect("a command is in the buffers");
            let rest = &buffers.input[buffers.offset..];
            for place in 0..done.count {
                let arguments = burst.arguments(rest, place);
                self.note_slow(turn, (id, command), arguments, (ns, ""));
            }
        }
        if self.looked_keys > 0 {
            self.looked_keys = self.looked_keys.saturating_sub(done.count);
        }
        self.last_command = command.name;
        if done.lsn.is_some() {
            self.session.last_write = done.lsn;
        }
        let durable = turn.shared.settings.durability() == Durability::Durable;
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        let gate = done.lsn.max(done.shown_from);
        buffers.output.release(gate.filter(|_| durable));
        buffers.offset += consumed;
        self.position += consumed as u64;
        buffers.parser.clear();
        buffers.progress.clear();
    }
}
