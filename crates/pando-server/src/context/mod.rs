//! What a command is, and what it runs in: its arguments, its reply, its session, the data.
//!
//! A command is a synchronous function that may be run again from its beginning (decision 009).
//! Whenever it would have to wait it stops with an [`Interrupted`]; its reply and its uncommitted
//! writes are dropped, and it runs again once the wait is over. So a command changes its session
//! only when nothing can interrupt it any longer. State that must survive an interruption is in
//! [`Progress`].

mod absent;
mod blocking;
mod collection;
pub(crate) mod draw;
pub(crate) mod edits;
mod events;
pub(crate) mod foreseen_rows;
#[cfg(feature = "scripts")]
mod functions;
mod index;
mod inputs;
mod interrupted;
pub(crate) mod job;
pub(crate) mod key_order;
mod large;
mod locks;
pub(crate) mod long_read;
mod look_ahead;
mod many_keys;
mod monitored;
mod named;
mod once;
mod ordered_reads;
pub(crate) mod overlay;
pub(crate) mod parts;
pub(crate) mod patience;
pub(crate) mod progress;
mod pushed;
pub(crate) mod replies;
pub(crate) mod reply_source;
mod row_source;
mod rows;
#[cfg(feature = "scripts")]
pub(crate) mod script_runs;
mod specification;
pub(crate) mod string_source;
mod strings;
pub(crate) mod subsequence;
mod table;
mod tree;

use pando_resp::{Arguments, Writer, parse_integer};
use pando_sync::Arc;
use pandodb::nonblocking::{Foreseen, ScanPage, ValidatedBatch};
use std::task::Waker;

use crate::client::record::ClientRecord;
use crate::client::session::Session;
use crate::client::staging::Staged;
use crate::context::foreseen_rows::ForeseenRows;
use crate::context::overlay::Overlay;
use crate::context::patience::{Leaves, Patience};
use crate::context::progress::Progress;
use crate::context::tree::list_end::EndBlock;
use crate::data::engine::{Database, Engine};
use crate::data::keyspace::RowError;
use crate::loop_handle::LoopHandle;
use crate::shared::Shared;

pub(crate) use blocking::Awaited;
pub(crate) use collection::Collection;
pub(crate) use index::CommandIndex;
pub(crate) use inputs::Input;
pub(crate) use interrupted::{Interrupted, Run};
pub(crate) use specification::{Command, Flags, Group, Keys, Kind, Secrets, behind_streams};
pub(crate) use strings::{Chunked, Former, Found, NewString};
pub(crate) use tree::copies::TreeCopy;
pub(crate) use tree::large_reply::is_too_long;
pub(crate) use tree::list_end::ListEnd;
pub(crate) use tree::merges::{Rule, Stored};
pub(crate) use tree::near::{Near, Seen};
pub(crate) use tree::part::Part;
pub(crate) use tree::search::Sought;
pub(crate) use tree::stream::{Rows, Stream, StreamCopy, Wanted};

/// Number of runs of a command that found a collection damaged, and had written before, after which
/// it is.
const RESTARTS_MAX: u32 = 100;

/// Buffers that commands use one after the other; one set per loop.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Value of the row that was read last.
    pub(crate) value: Vec<u8>,
    /// Stored key of the current access.
    pub(crate) stored: Vec<u8>,
    /// Row or expiry entry to be written.
    pub(crate) encoded: Vec<u8>,
    /// Key of the row of an element.
    pub(crate) element_key: Vec<u8>,
    /// Value of the row of an element.
    pub(crate) element_row: Vec<u8>,
    /// The row of a head that was read again.
    pub(crate) head_row: Vec<u8>,
    /// Rows of the leaf that was scanned last.
    pub(crate) page: ScanPage,
    /// Memory for the block at the end of a list.
    pub(crate) end_block: EndBlock,
    /// Rows that a command of many keys is about to read.
    pub(crate) rows: ForeseenRows,
    /// Where the rows are that the commands of a pipeline run are about to read.
    pub(crate) foreseen: Foreseen,
    /// What a script has changed; empty between two.
    #[cfg(feature = "scripts")]
    pub(crate) overlay: Overlay,
}

impl Scratch {
    /// Frees the memory of unusually large values.
    pub(crate) fn trim(&mut self, bytes: usize) {
        for buffer in [
            &mut self.value,
            &mut self.stored,
            &mut self.encoded,
            &mut self.element_key,
            &mut self.element_row,
            &mut self.head_row,
        ] {
            if buffer.capacity() > bytes {
                *buffer = Vec::new();
            }
        }
    }
}

/// Access to the data. Exists only while the engine is open.
pub(crate) struct Data<'a> {
    /// The open store and its limits.
    pub(crate) engine: &'a Engine,
    /// Present for commands that write or read several keys; plain reads have none.
    pub(crate) batch: Option<&'a mut ValidatedBatch>,
    /// The loop's; each access overwrites what the ones before it have left.
    pub(crate) scratch: &'a mut Scratch,
    /// Changes that EXEC has made so far.
    pub(crate) overlay: Option<&'a mut Overlay>,
    /// Whether scripts leave the loop.
    pub(crate) leaves: Leaves,
    /// Set on script threads.
    pub(crate) patience: Option<Patience<'a>>,
}

/// The environment of one run of one command.
pub(crate) struct Context<'a> {
    /// Number 0 is the name of the command.
    pub(crate) arguments: Arguments<'a>,
    /// The arguments that are not held in memory; among `arguments` they are empty.
    pub(crate) staged: &'a [Staged],
    /// A subcommand, if one was called.
    pub(crate) command: &'static Command,
    /// Changed only when nothing can interrupt the run any longer.
    pub(crate) session: &'a mut Session,
    /// Replies of the connection; the run appends its own, which is dropped if it is interrupted.
    pub(crate) out: &'a mut Vec<u8>,
    /// Where the reply begins in `out`; for a command inside EXEC, where the reply of EXEC begins.
    pub(crate) reply_start: usize,
    pub(crate) shared: &'a Shared,
    pub(crate) commands: &'a CommandIndex,
    /// The loop that runs the command.
    pub(crate) local: &'a Arc<LoopHandle>,
    /// What other threads see of the client.
    pub(crate) record: &'a ClientRecord,
    /// `None` until the engine is open.
    pub(crate) data: Option<Data<'a>>,
    /// What survives an interruption of the run.
    pub(crate) progress: &'a mut Progress,
    /// Wakes the connection; for whatever an interrupted run waits for.
    pub(crate) waker: &'a Waker,
    /// Unix time of the beginning of the turn, in milliseconds; expiry is decided by it.
    pub(crate) now_ms: u64,
    /// Place of the command in its EXEC; `None` outside.
    pub(crate) exec_index: Option<usize>,
    /// It shares its batch with other commands of a pipeline (decision 076): it yields where it
    /// meets a string in chunks, and then runs alone.
    pub(crate) is_together: bool,
}

impl<'a> Context<'a> {
    /// Returns the context of a command inside EXEC, in the same environment.
    pub(crate) fn nested<'b>(
        &'b mut self,
        command: &'static Command,
        arguments: Arguments<'b>,
        staged: &'b [Staged],
        index: usize,
        overlay: &'b mut Overlay,
    ) -> Context<'b> {
        let data = self.data.as_mut().map(|data| Data {
            engine: data.engine,
            batch: data.batch.as_deref_mut(),
            scratch: data.scratch,
            overlay: Some(overlay),
            leaves: data.leaves,
            patience: data.patience.as_mut().map(Patience::lend),
        });
        Context {
            arguments,
            staged,
            command,
            session: self.session,
            out: self.out,
            reply_start: self.reply_start,
            shared: self.shared,
            commands: self.commands,
            local: self.local,
            record: self.record,
            data,
            progress: self.progress,
            waker: self.waker,
            now_ms: self.now_ms,
            exec_index: Some(index),
            is_together: self.is_together,
        }
    }

    /// Runs the command from its beginning. One that is refused replies with the error.
    #[inline]
    pub(crate) fn run(&mut self) -> Run {
        if self.session.interactive.is_some() {
            self.lock_written()?;
        }
        if self.exec_index.is_some()
            && let Some(tracking) = &self.session.tracking
            && self.command.is_tracked()
            && tracking.options.keeps()
        {
            let reads = self.progress.tracked_reads.get_or_insert_default();
            let keys = self.command.keys.of(self.arguments);
            keys.for_each(|key| reads.add(key));
        }
        if self.progress.key_order.is_some() && self.exec_index.is_none() {
            self.read_in_order()?;
        }
        let run = match self.is_shown() {
            true => self.run_shown(),
            false => self.run_command(),
        };
        if let Err(Interrupted::Pending(pending)) = &run {
            self.note_wait(pending);
        }
        run
    }

    #[inline]
    fn run_command(&mut self) -> Run {
        let start = self.out.len();
        let (written, held) = (self.write_calls(), self.progress.held_bytes);
        let events = self.progress.events.mark();
        let run = (self.command.run)(self);
        // What a command of EXEC held is gone with it.
        self.progress.held_bytes = held;
        match run {
            Err(Interrupted::Refused(text)) if self.write_calls() == written => {
                self.out.truncate(start);
                self.progress.events.truncate(events);
                self.fail(&text)
            }
            // Its commit tells damage from a head of another moment; if it has written, a new run
            // does, at a new moment: what is answered as before would contradict itself again.
            Err(Interrupted::Torn) if self.write_calls() == written => {
                self.out.truncate(start);
                self.progress.events.truncate(events);
                self.fail(replies::TORN)
            }
            // And what was written from rows of two moments, by it or by those before it in its
            // batch, may be no row that it can read.
            Err(Interrupted::Torn | Interrupted::Row(RowError::Damaged))
                if self.write_calls() != 0 && self.progress.restarts < RESTARTS_MAX =>
            {
                self.progress.restarts += 1;
                if let Some(batch) = self
                    .data
                    .as_mut()
                    .and_then(|data| data.batch.as_deref_mut())
                {
                    batch.forget_refreshed();
                }
                Err(Interrupted::Yield)
            }
            Err(Interrupted::Torn) => Err(replies::TORN.into()),
            run => run,
        }
    }

    fn write_calls(&self) -> u64 {
        let batch = self.data.as_ref().and_then(|data| data.batch.as_deref());
        batch.map_or(0, ValidatedBatch::write_calls)
    }

    /// Returns the writer of the reply.
    #[inline]
    pub(crate) fn reply(&mut self) -> Writer<'_> {
        Writer::new(self.out, self.session.version)
    }

    /// Replies with an error and ends the command.
    pub(crate) fn fail(&mut self, text: &str) -> Run {
        self.reply().error(text);
        Ok(())
    }

    /// Replies `OK` and ends the command.
    #[inline]
    pub(crate) fn ok(&mut self) -> Run {
        self.reply().ok();
        Ok(())
    }

    /// Replies with lines of help and ends the command.
    pub(crate) fn lines(&mut self, lines: &[&str]) -> Run {
        let mut reply = self.reply();
        reply.array(lines.len());
        lines.iter().for_each(|line| reply.simple(line));
        Ok(())
    }

    /// Replies with an integer and ends the command.
    pub(crate) fn integer(&mut self, value: i64) -> Run {
        self.reply().integer(value);
        Ok(())
    }

    /// Returns the number of arguments, the name included.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.arguments.len()
    }

    /// Returns argument `index`; the caller knows from the command's arity that it exists.
    #[inline]
    pub(crate) fn argument(&self, index: usize) -> &'a [u8] {
        self.arguments.at(index)
    }

    /// Returns true if argument `index` is `word`, in any case.
    pub(crate) fn is(&self, index: usize, word: &str) -> bool {
        self.arguments
            .get(index)
            .is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Returns argument `index` as an integer, or the text of the error.
    pub(crate) fn integer_at(&self, index: usize) -> Result<i64, &'static str> {
        parse_integer(self.argument(index)).ok_or(replies::NOT_AN_INTEGER)
    }

    /// Returns argument `index` as a number that is not below `least`; else the error is `text`.
    pub(crate) fn number_from(
        &self,
        index: usize,
        least: usize,
        text: &'static str,
    ) -> Result<usize, &'static str> {
        match self.integer_at(index).map(usize::try_from) {
            Ok(Ok(number)) if number >= least => Ok(number),
            _ => Err(text),
        }
    }

    /// # Panics
    /// While the engine is opening: commands that need data are not run then.
    #[inline]
    pub(crate) fn data(&mut self) -> &mut Data<'a> {
        self.data
            .as_mut()
            .expect("commands with data run when the engine is open")
    }

    /// Returns the open engine.
    #[inline]
    pub(crate) fn engine(&self) -> &'a Engine {
        let data = self.data.as_ref();
        data.expect("commands with data run when the engine is open")
            .engine
    }

    /// Returns the selected database.
    #[inline]
    pub(crate) fn database(&self) -> &'a Database {
        &self.engine().databases[self.session.database]
    }

    /// Runs `part` of the command with database `number` selected; its end restores the selection.
    pub(crate) fn in_database<T>(&mut self, number: usize, part: impl FnOnce(&mut Self) -> T) -> T {
        let own = std::mem::replace(&mut self.session.database, number);
        let result = part(self);
        self.session.database = own;
        result
    }

    /// Interrupts the command if its reply has become too long.
    #[inline]
    pub(crate) fn check_reply(&self) -> Run {
        let bytes = self.out.len() - self.reply_start + self.progress.stream_bytes;
        if bytes > self.engine().reply_bytes_max {
            return Err(Interrupted::ReplyTooLong);
        }
        Ok(())
    }
}
