//! State that a long command keeps while it waits or yields. Dropped when the command has finished.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use pando_sync::Arc;
use pando_sync::time::{Duration, Instant};
use pandodb::Lsn;

use super::edits::Edits;
use super::job::Job;
use super::key_order::KeyOrder;
use super::long_read::LongRead;
use super::parts::Parts;
use super::pushed::Pushed;
use super::reply_source::ReplySource;
#[cfg(feature = "scripts")]
use super::script_runs::ScriptRuns;
use super::subsequence::Table;
use super::tree::ahead::Ahead;
use super::tree::builds::Builds;
use super::tree::kept_head::KeptHead;
use super::tree::kept_pieces::PieceReads;
use super::tree::known_ends::KnownEnds;
use super::tree::list_walk::ListWalks;
use super::tree::part::Load;
use super::tree::read_stretch::ReadStretch;
use crate::client::waiters::Registration;
use crate::client::watches::Watches;
use crate::data::stream_id::StreamId;
use crate::data::tree_head::TreeHead;
use crate::loop_handle::Underway;
use crate::monitoring::lines::Lines;
use crate::notifications::recorded::{Mark, Recorded};
use crate::tracking::reads::TrackedReads;
use crate::tracking::written::Written;

/// An iteration over a database that is under way.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The stored key after which the iteration began; `None` for the beginning.
    pub(crate) start: Option<Vec<u8>>,
    /// Where it continues; `None` at the beginning.
    pub(crate) position: Option<Position>,
    /// Number of keys examined.
    pub(crate) examined: u64,
    /// Number of keys in `found`.
    pub(crate) count: usize,
    /// Encoded replies of the keys that match.
    pub(crate) found: Vec<u8>,
    /// The keys in `found` may be shown once this LSN is durable.
    pub(crate) shown_from: Option<Lsn>,
    /// The end of the database was reached.
    pub(crate) at_end: bool,
    /// It has begun, so `start` is decided.
    pub(crate) begun: bool,
    /// It has reached the end, or as many keys or bytes as this command may take.
    pub(crate) done: bool,
}

impl Walk {
    /// Returns where it continues, as a bound for the engine.
    pub(crate) fn from(&self) -> Bound<&[u8]> {
        let position = self.position.as_ref();
        position.map_or(Bound::Unbounded, Position::bound)
    }

    /// Returns the memory that it takes, about.
    fn memory(&self) -> usize {
        size_of::<Self>() + self.found.len()
    }

    /// Notes that nothing is left.
    pub(crate) fn end(&mut self) {
        self.at_end = true;
        self.done = true;
    }
}

/// A PANDO RANGE or PANDO COUNT that is under way.
#[derive(Debug, Default)]
pub(crate) struct KeyRange {
    /// Where it continues; `None` at the beginning of its part.
    pub(crate) position: Option<Bound<Vec<u8>>>,
    /// It has come to the long keys, which are its second part.
    pub(crate) is_long: bool,
    /// Nothing is left.
    pub(crate) is_done: bool,
    /// Keys, each with its encoded value if that is asked for.
    pub(crate) found: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The last of them cannot be replied, with its value, for this reason: keys behind it do not
    /// matter, and it does not if enough others are found before it.
    pub(crate) unfit: Option<&'static str>,
    /// Memory that they take.
    pub(crate) bytes: usize,
    /// Number of keys in the range so far.
    pub(crate) count: u64,
    /// The time that decides which keys have ended: that of the first run.
    pub(crate) now_ms: Option<u64>,
    /// They may be shown once this LSN is durable.
    pub(crate) shown_from: Option<Lsn>,
    /// A string in pieces that is being read: its id, and what was read of it.
    pub(crate) string: Option<(u64, Vec<u8>)>,
}

/// A place between two stored keys.
#[derive(Debug)]
pub(crate) enum Position {
    /// Continue with this key, or with the first one after it.
    At(Vec<u8>),
    /// Continue after this key.
    Behind(Vec<u8>),
}

impl Position {
    /// Returns it as a bound for the engine.
    pub(crate) fn bound(&self) -> Bound<&[u8]> {
        match self {
            Self::At(key) => Bound::Included(key),
            Self::Behind(key) => Bound::Excluded(key),
        }
    }
}

/// A WATCH that is under way. A change after any of its reads counts as a change.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Number of keys that it has read.
    pub(crate) keys: usize,
    /// Of the keys that it has read.
    pub(crate) watches: Watches,
    /// It has met an expired key, and first removes all expired keys.
    pub(crate) removing: bool,
    /// Number of keys that its next commit removes.
    pub(crate) removed: u64,
}

/// State of the running command of one connection.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Iterations, by the place of their command in EXEC.
    walks: Vec<(usize, Walk)>,
    /// Keys in order that are being read.
    pub(crate) key_range: Option<Box<KeyRange>>,
    /// Parts of large collections that are being loaded.
    pub(crate) loads: Vec<Load>,
    /// The head of the collection that the current run has read without a transaction.
    pub(crate) beside: Option<TreeHead>,
    /// The last swap of the table of elements as of the first such head.
    pub(crate) beside_swap: Option<Lsn>,
    /// Number of parts that began again since the head had changed.
    pub(crate) restarts: u32,
    /// Number of reservations for that reason, and how many parts had begun again before the last
    /// one.
    pub(crate) reservations: (u32, u32),
    /// Its keys, if they are read in their order first.
    pub(crate) key_order: Option<Box<KeyOrder>>,
    /// Of EXEC, the place of the command that waited last.
    pub(crate) waiting_index: usize,
    /// Number of turns in which parts were loaded.
    pub(crate) turns: u32,
    /// Those that were loaded.
    pub(crate) loaded: Vec<Arc<Load>>,
    /// Walks over large lists that are under way, or have ended. A run that is repeated goes on
    /// with them also after a conflict: they are of the state of the list that their goal names.
    pub(crate) list_walks: ListWalks,
    /// Strings in pieces that are being read, or were.
    pub(crate) strings: Option<Box<PieceReads>>,
    /// Those that the next command of a pipeline run will need.
    pub(crate) ahead: Option<Box<Ahead>>,
    /// The head that the commands of a pipeline run so far have changed, and not written.
    pub(crate) kept_head: Option<Box<KeptHead>>,
    /// The head that commands of a pipeline run that read share.
    pub(crate) read_stretch: Option<Box<ReadStretch>>,
    /// Where lists end; kept for later commands, since each is of one state of its list.
    pub(crate) known_ends: KnownEnds,
    /// Seed of the command's random choices, which are the same in all of its runs: a new choice
    /// after a wait would prefer what is in memory.
    pub(crate) seed: Option<u64>,
    /// The seed of a command that had to leave a pipeline run, and where in its connection's input
    /// it begins: commands that are run again before it have their own.
    cut_draw: Option<(u64, u64)>,
    /// Of a script that left a pipeline run likewise: the count of kills with which it began.
    #[cfg(feature = "scripts")]
    cut_kills: Option<(u64, u64)>,
    /// Tables of LCS, likewise.
    tables: Vec<(usize, Table)>,
    /// Memory that iterations and tables take.
    kept_bytes: usize,
    /// Memory of rows that the running command holds.
    pub(crate) held_bytes: usize,
    /// The keys that a WATCH has read so far.
    pub(crate) watching: Option<Box<Watching>>,
    /// The job that the command waits for.
    pub(crate) job: Option<Arc<Job>>,
    /// The commands of EXEC act beside the store once it is committed.
    pub(crate) acts_late: bool,
    /// The commands of the current run of an EXEC that are to act beside the store, in their order.
    pub(crate) withheld: Vec<Withheld>,
    /// What commands of EXEC have done beside the store, in all runs so far.
    pub(crate) done: Vec<Done>,
    /// The clients that CLIENT KILL has hit.
    pub(crate) killed: Option<Box<Killed>>,
    /// When the command stops waiting; the loop wakes it then.
    pub(crate) deadline: Option<Instant>,
    /// The command waits for something that may never come.
    pub(crate) waiting: bool,
    /// It began in a pause of writes, and is to wait when it calls a function that may write.
    pub(crate) holds_writers: bool,
    /// Number of look-ups of the current run that found their key.
    pub(crate) hits: u32,
    /// Number of look-ups of the current run that did not find their key.
    pub(crate) misses: u32,
    /// Commands that the current run of an EXEC or script has called, and those of the scripts
    /// before it in a pipeline run.
    pub(crate) calls: Vec<InnerCall>,
    /// Values that are parts of the current run's reply, each with its offset in the reply.
    pub(crate) streams: Vec<(usize, ReplySource)>,
    /// Of a command that shows many elements of a large collection.
    pub(crate) long_read: Option<Box<LongRead>>,
    /// The running command was called by a script: its reply has strings in chunks as they are.
    pub(crate) replies_in_memory: bool,
    /// Memory that `streams` take.
    pub(crate) stream_bytes: usize,
    /// The reply of the current run confirms subscriptions: as messages, it is sent to clients that
    /// want no replies, too.
    pub(crate) confirms: bool,
    /// Database and stored keys that the next run locks first.
    pub(crate) to_lock: Option<(usize, Vec<Vec<u8>>)>,
    /// A database, and whether it had no expiry entries when the current run, or the pipeline run,
    /// looked first.
    pub(crate) without_entries: Option<(usize, bool)>,
    /// What the current run has read may be shown once this LSN is durable.
    shown_from: Option<Lsn>,
    /// The clock of all runs of a command that writes, in milliseconds of Unix time: what a run
    /// writes is what the one before has written.
    pub(crate) now_ms: Option<u64>,
    /// Strings in chunks that are being made.
    pub(crate) edits: Edits,
    /// Large collections that are being made.
    pub(crate) builds: Builds,
    /// Parts of strings in chunks that are being read.
    pub(crate) parts: Parts,
    /// What the runs of its scripts share; kept for the scripts of later commands.
    #[cfg(feature = "scripts")]
    pub(crate) scripts: Option<Box<ScriptRuns>>,
    /// The command waits, or has waited, for elements of its keys.
    pub(crate) blocked: Option<Box<Blocked>>,
    /// Keys whose elements were written and not committed yet. Those of runs that are repeated stay
    /// in it: who is woken for nothing looks and waits again.
    pub(crate) pushed: Pushed,
    /// What the current run has done to keys, to be told once it is committed.
    pub(crate) events: Recorded,
    /// What monitors see of the commands inside the current run of an EXEC or script.
    pub(crate) lines: Lines,
    /// Keys that were written and not committed yet, for the clients that have read them. Those of
    /// runs that are repeated stay in it: who forgets a key for nothing reads it again.
    pub(crate) written: Written,
    /// Keys that the commands of the current run of an EXEC or script have read, for a client that
    /// tracks.
    pub(crate) tracked_reads: Option<Box<TrackedReads>>,
    /// The command has put its keys into the table of those that are tracked: until its end, or
    /// until it waits for others, messages about keys are held back.
    pub(crate) is_tracking: bool,
}

/// Number of calls for which a connection keeps room between two commands: those of some short
/// scripts.
const CALLS_KEPT: usize = 16;

/// What a run of a script has reached before a command that it calls.
#[cfg(feature = "scripts")]
pub(crate) struct RunPlace {
    edits: usize,
    builds: usize,
    parts: usize,
    found: (u32, u32),
    events: Mark,
}

/// What the commands of a pipeline run have left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunMark {
    events: Mark,
    calls: usize,
}

/// A command of EXEC that acts beside the store once EXEC is committed.
#[derive(Debug, Clone)]
pub(crate) struct Withheld {
    /// Its place in EXEC.
    pub(crate) place: usize,
    /// Its number among [`Progress::calls`].
    pub(crate) call: usize,
    /// Where the reply to EXEC, counted from its beginning, has a null for its own.
    pub(crate) reply: Range<usize>,
}

/// What a command of EXEC has done beside the store.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its place in EXEC.
    pub(crate) place: usize,
    pub(crate) reply: Vec<u8>,
    /// It closes its own client when EXEC has ended.
    pub(crate) closes: bool,
}

/// Clients that were killed.
#[derive(Debug)]
pub(crate) struct Killed {
    pub(crate) count: i64,
    /// The client that kills is one of them.
    pub(crate) has_own: bool,
    /// The loops of the others that do not know it.
    pub(crate) underway: Arc<Underway>,
}

/// A command that waits for elements of its keys.
#[derive(Debug)]
pub(crate) struct Blocked {
    /// When it stops waiting; `None`: never.
    pub(crate) until: Option<Instant>,
    /// Its place among those that wait.
    pub(crate) registration: Registration,
    /// Of a client that reads streams: the ID of each, behind which it waits for entries.
    pub(crate) ids: Vec<StreamId>,
}

/// A command inside an EXEC or a script.
#[derive(Debug, Default)]
pub(crate) struct InnerCall {
    /// Its number in the index of commands; `None`: no command is called so.
    pub(crate) id: Option<usize>,
    /// Duration of its run in nanoseconds.
    pub(crate) ns: u64,
    /// Code of the error that it replied, if it did.
    pub(crate) error: Option<Vec<u8>>,
    /// It did not run: a script must not call it, or not so. With no number it is an error inside
    /// of the reply of a script.
    pub(crate) is_refused: bool,
    /// Its script has ended with this error, which counts as that of the script.
    pub(crate) is_passed_on: bool,
}

impl Progress {
    /// Returns the seed of the command.
    pub(crate) fn seed(&mut self) -> u64 {
        *self.seed.get_or_insert_with(|| fastrand::u64(..))
    }

    /// Keeps the seed of the command at `position` of the input, which leaves a pipeline run: it
    /// may do so since what it has drawn is not in memory, and a new draw would prefer what is. If
    /// it is a script, keeps with how many kills it began: it is killed by one that comes now.
    pub(crate) fn leave_run(&mut self, position: u64) {
        self.cut_draw = self.seed.take().map(|seed| (position, seed));
        #[cfg(feature = "scripts")]
        {
            let kills = self.scripts.as_ref().and_then(|of| of.kills_before());
            self.cut_kills = kills.map(|kills| (position, kills));
        }
    }

    /// As [`Progress::leave_run`], of a command that has run with this progress and begins alone
    /// with `own`, which is its connection's; it is no script.
    pub(crate) fn leave_round(&mut self, own: &mut Self, position: u64) {
        own.cut_draw = self.seed.take().map(|seed| (position, seed));
    }

    /// Returns true if a command has left a run, and has not begun by itself since.
    pub(crate) fn has_left_run(&self) -> bool {
        self.cut_draw.is_some()
    }

    /// Forgets what a command had in a pipeline run that it has left: its input is gone.
    pub(crate) fn forget_cut(&mut self) {
        self.cut_draw = None;
        #[cfg(feature = "scripts")]
        {
            self.cut_kills = None;
        }
    }

    /// Gives the command at `position`, which begins, what it has had in a pipeline run: its seed,
    /// and the kills of before.
    #[inline]
    pub(crate) fn begin_at(&mut self, position: u64) {
        if let Some((_, seed)) = self.cut_draw.take_if(|(of, _)| *of == position) {
            self.seed = Some(seed);
        }
        #[cfg(feature = "scripts")]
        if let Some((_, kills)) = self.cut_kills.take_if(|(of, _)| *of == position) {
            self.scripts.get_or_insert_default().begin_at(kills);
        }
    }

    /// Takes out the iteration of the command at `index`. Put it back with [`Progress::keep_walk`]
    /// before the run is interrupted.
    pub(crate) fn take_walk(&mut self, index: usize) -> Walk {
        let Some(at) = self.walks.iter().position(|(of, _)| *of == index) else {
            return Walk::default();
        };
        let walk = self.walks.swap_remove(at).1;
        self.kept_bytes -= walk.memory();
        walk
    }

    /// Keeps the iteration of the command at `index` for the next run.
    pub(crate) fn keep_walk(&mut self, index: usize, walk: Walk) {
        self.kept_bytes += walk.memory();
        self.walks.push((index, walk));
    }

    /// Returns the memory that iterations and tables of LCS take.
    #[cfg(feature = "scripts")]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Returns the memory that the running command takes, about: of what it has read and found, and
    /// not yet replied.
    pub(crate) fn memory(&self) -> usize {
        let range = self.key_range.as_ref().map_or(0, |of| of.bytes);
        let loads = self.loads.iter().map(Load::bytes).sum::<usize>();
        let strings = self.strings.as_ref().map_or(0, |of| of.memory());
        let read = self.long_read.as_ref();
        let draw = read
            .and_then(|of| of.draw.as_ref())
            .map_or(0, |of| of.memory());
        let kept = self.kept_bytes + self.held_bytes + self.stream_bytes;
        kept + range + loads + self.loaded_bytes() + strings + draw + self.parts.memory()
    }

    /// Returns the memory of the parts that were loaded, and of walks over lists.
    pub(super) fn loaded_bytes(&self) -> usize {
        let loaded = self.loaded.iter().map(|load| load.bytes());
        loaded.sum::<usize>() + self.list_walks.bytes()
    }

    /// Takes out the table of the LCS at `index`; the strings may have changed since.
    pub(crate) fn take_table(&mut self, index: usize) -> Option<Table> {
        let place = self.tables.iter().position(|(of, _)| *of == index)?;
        let table = self.tables.swap_remove(place).1;
        self.kept_bytes -= table.memory();
        Some(table)
    }

    /// Keeps the table of the LCS at `index` for the next run.
    pub(crate) fn keep_table(&mut self, index: usize, table: Table) {
        self.kept_bytes += table.memory();
        self.tables.push((index, table));
    }

    /// Records that something was read that may be shown once `lsn` is durable.
    #[inline]
    pub(crate) fn show_from(&mut self, lsn: Option<Lsn>) {
        self.shown_from = self.shown_from.max(lsn);
    }

    /// Returns the LSN that must be durable before the reply may be shown.
    #[inline]
    pub(crate) fn shown_from(&self) -> Option<Lsn> {
        self.shown_from
    }

    /// Drops all state, and keeps no memory.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.edits.is_empty() {
            self.edits = Edits::default();
        }
        if !self.builds.is_empty() {
            self.builds = Builds::default();
        }
        self.blocked = None;
        self.killed = None;
        self.acts_late = false;
        if !self.done.is_empty() {
            self.done = Vec::new();
        }
        self.seed = None;
        (self.restarts, self.turns) = (0, 0);
        self.key_order = None;
        self.waiting_index = 0;
        if self.long_read.is_some() {
            self.long_read = None;
        }
        self.reservations = (0, 0);
        self.pushed.clear();
        self.written.clear();
        self.is_tracking = false;
        self.holds_writers = false;
        if !self.parts.is_empty() {
            self.parts = Parts::default();
        }
        if !self.tables.is_empty() {
            for (_, table) in std::mem::take(&mut self.tables) {
                self.kept_bytes -= table.memory();
            }
        }
        self.forget_scripts();
        self.list_walks.clear();
        self.begin_again();
    }

    /// Returns the time that the runs of the command's scripts took so far.
    #[inline]
    pub(crate) fn time_of_scripts(&self) -> Duration {
        #[cfg(feature = "scripts")]
        if let Some(scripts) = &self.scripts {
            return scripts.spent_by_all();
        }
        Duration::ZERO
    }

    /// The command that runs next has no scripts that have run.
    #[inline]
    pub(crate) fn forget_scripts(&mut self) {
        #[cfg(feature = "scripts")]
        if let Some(scripts) = &mut self.scripts {
            scripts.reset();
        }
    }

    /// Like [`Progress::clear`], but keeps the strings that were made of values that may be
    /// unchanged.
    #[inline]
    pub(crate) fn begin_again(&mut self) {
        if !self.walks.is_empty() {
            for (_, walk) in std::mem::take(&mut self.walks) {
                self.kept_bytes -= walk.memory();
            }
        }
        self.forget_loads();
        self.now_ms = None;
        self.to_lock = None;
        self.watching = None;
        self.key_range = None;
        #[cfg(feature = "scripts")]
        if let Some(scripts) = &mut self.scripts {
            scripts.begin_again();
        }
        self.job = None;
        self.deadline = None;
        self.waiting = false;
        self.take_back();
        if self.calls.capacity() > CALLS_KEPT {
            self.calls = Vec::new();
        }
    }

    /// Drops what belongs to one command alone, before the next one of a pipeline run.
    #[inline]
    pub(crate) fn next_in_run(&mut self) {
        self.seed = None;
        self.forget_scripts();
        self.kept_head.take_if(|kept| kept.was_written());
        // The next one may load, too; the end of the run frees what they keep.
        self.loads.clear();
        self.loaded.clear();
        self.list_walks.clear();
        if self.strings.is_some() {
            self.strings = None;
        }
    }

    /// Drops what is known of the collection that one command of a pipeline run has read, but for
    /// the head that the next one may share.
    #[inline]
    pub(crate) fn next_read(&mut self) {
        (self.beside, self.beside_swap, self.shown_from) = (None, None, None);
    }

    /// Returns what the run has reached before a command that a script calls, for
    /// [`Progress::go_on_from`].
    #[cfg(feature = "scripts")]
    pub(crate) fn place(&self) -> RunPlace {
        RunPlace {
            edits: self.edits.place(),
            builds: self.builds.place(),
            parts: self.parts.place(),
            found: (self.hits, self.misses),
            events: self.events.mark(),
        }
    }

    /// Drops what the command behind `place`, which has written nothing, has counted and requested:
    /// it is repeated, and the run around it is not. What it has read may be noted twice.
    #[cfg(feature = "scripts")]
    pub(crate) fn go_on_from(&mut self, place: &RunPlace) {
        self.edits.rewind_to(place.edits);
        self.builds.rewind_to(place.builds);
        self.parts.rewind_to(place.parts);
        (self.hits, self.misses) = place.found;
        self.events.truncate(place.events);
    }

    /// Drops the parts of large collections.
    #[inline]
    pub(crate) fn forget_loads(&mut self) {
        self.ahead = None;
        self.strings = None;
        if self.loads.capacity() > 0 {
            self.loads = Vec::new();
        }
        if self.loaded.capacity() > 0 {
            self.loaded = Vec::new();
        }
    }

    /// Returns what the commands of a pipeline run so far have left, for
    /// [`Progress::take_back_to`].
    pub(crate) fn mark(&self) -> RunMark {
        RunMark {
            events: self.events.mark(),
            calls: self.calls.len(),
        }
    }

    /// As [`Progress::take_back`], of the last command of a pipeline run alone: what lies before
    /// `mark` is of the commands before it. Its scripts begin anew, at a new moment.
    pub(crate) fn take_back_to(&mut self, mark: RunMark) {
        let mut events = std::mem::take(&mut self.events);
        let mut calls = std::mem::take(&mut self.calls);
        events.truncate(mark.events);
        calls.truncate(mark.calls);
        self.take_back();
        self.forget_scripts();
        (self.events, self.calls) = (events, calls);
    }

    /// Drops what the current run has counted and replied: it is repeated or has failed.
    #[inline]
    pub(crate) fn take_back(&mut self) {
        self.events.clear();
        self.without_entries = None;
        (self.hits, self.misses) = (0, 0);
        self.confirms = false;
        self.held_bytes = 0;
        self.shown_from = None;
        self.beside = None;
        self.beside_swap = None;
        self.calls.clear();
        if !self.withheld.is_empty() {
            self.withheld = Vec::new();
        }
        self.lines.clear();
        self.tracked_reads = None;
        self.edits.rewind();
        self.builds.rewind();
        self.parts.rewind();
        if !self.streams.is_empty() {
            self.streams = Vec::new();
            self.stream_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands before the one that has drawn have their own numbers, and it has those that it had,
    /// once.
    #[test]
    fn a_draw_belongs_to_its_place_in_the_input() {
        let mut progress = Progress::default();
        let seed = progress.seed();
        progress.leave_run(70);
        progress.clear();
        for place in [30, 50] {
            progress.begin_at(place);
            assert_eq!(progress.seed, None);
            assert_ne!(progress.seed(), seed);
            progress.clear();
        }
        progress.begin_at(70);
        assert_eq!(progress.seed, Some(seed));
        progress.clear();
        progress.begin_at(70);
        assert_eq!(progress.seed, None);
        let _seed = progress.seed();
        progress.leave_run(70);
        progress.clear();
        progress.forget_cut();
        progress.begin_at(70);
        assert_eq!(progress.seed, None, "another connection");
    }
}
