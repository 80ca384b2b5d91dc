//! The state of one connection, which bounds what a peer can make the server hold.
//!
//! Owned by one loop. An idle connection owns no buffers: they return to the loop's pool when all
//! input is executed and all replies are sent. Input is read only while it can be used, and
//! commands are executed only while replies leave.

use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::task::Waker;

use pando_resp::{Limits, Parser};
use pando_sync::atomic::Ordering;
use pando_sync::time::{Duration, Instant, now};
use pando_sync::{Arc, WakerArc};
use pandodb::Lsn;

use crate::client::record::ClientRecord;
use crate::client::session::{Multi, Session};
use crate::client::staging::Staging;
use crate::connection::loop_data::Turn;
use crate::connection::output::Output;
use crate::connection::pipeline_run::PipelineQuota;
use crate::connection::running::Running;
use crate::context::progress::Progress;
use crate::figures::command_profile::CommandWaits;
use crate::loop_handle::TokenWake;
use crate::socket::Stream;

/// Number of unsent reply bytes at which a peer that has not authenticated stops executing.
const UNAUTHENTICATED_OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Memory that a buffer keeps in the pool.
const BUFFER_BYTES_KEPT: usize = 16 * 1024;
/// The same for the few large buffers, which the busiest connections reuse.
const LARGE_BUFFER_BYTES_KEPT: usize = 256 * 1024;
/// Longest argument that is held in memory while the engine is opening, and length of a command
/// behind which its arguments are read away.
const LOADING_WHOLE_BYTES_MAX: usize = 1024 * 1024;

/// Buffers that a connection has while it is not idle.
#[derive(Default)]
pub(crate) struct Buffers {
    /// Received bytes, which are dropped some time after their commands have run.
    pub(crate) input: Vec<u8>,
    /// Where the current command begins in `input`.
    pub(crate) offset: usize,
    /// How far the command at `offset` has been parsed.
    pub(crate) parser: Parser,
    /// Replies that were not sent yet.
    pub(crate) output: Output,
    /// What the running command keeps between its runs.
    pub(crate) progress: Box<Progress>,
    /// What the running command has waited for, if it has waited.
    pub(crate) waits: CommandWaits,
    /// Long arguments of the command that arrives.
    pub(crate) staging: Staging,
}

impl Buffers {
    /// Returns the memory that they take, about.
    fn memory(&self) -> usize {
        self.input.capacity() + self.parser.memory() + self.output.memory() + self.progress.memory()
    }

    /// Resets the buffers for the pool; a large one keeps more memory.
    pub(crate) fn recycle(&mut self, is_large: bool) {
        let kept = if is_large {
            LARGE_BUFFER_BYTES_KEPT
        } else {
            BUFFER_BYTES_KEPT
        };
        self.input.clear();
        self.input.shrink_to(kept);
        self.offset = 0;
        self.parser.clear();
        self.parser.shrink_to(64);
        self.output.reset(kept);
        self.progress.clear();
        self.progress.forget_cut();
        self.staging.clear();
    }
}

/// Buffers that no connection uses at the moment. Boxed, so that a connection that becomes busy
/// moves a pointer and allocates nothing.
pub(crate) type SpareBuffers = Vec<Box<Buffers>>;

/// A command that was held for others (`held.rs`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    /// Its position in the input of the connection.
    pub(crate) position: u64,
    /// When it waits for others no longer; `None`: it does not.
    pub(crate) until: Option<Instant>,
    /// Its time was over. Until then no other command is held: who is to be served may be slow for
    /// long, and a pipeline would wait for him at each of its commands.
    pub(crate) pause: Option<Instant>,
}

/// A client's connection.
pub(crate) struct Connection {
    /// Never blocks.
    pub(crate) stream: Stream,
    /// What other threads see of the connection.
    pub(crate) record: Arc<ClientRecord>,
    /// Has the loop give the connection a turn.
    pub(crate) wake: WakerArc<TokenWake>,
    /// For what its command waits for: the same as `wake`, but on a script thread.
    pub(crate) waker: Waker,
    /// State that commands read and change.
    pub(crate) session: Session,
    /// `None` while the connection is idle.
    pub(crate) buffers: Option<Box<Buffers>>,
    /// The command that has begun and not finished; it waits for something.
    pub(crate) running: Option<Running>,
    /// Time of the last [`Connection::publish`]; idle time counts from here.
    pub(crate) active: Instant,
    /// Number of bytes of the commands that it has executed.
    pub(crate) position: u64,
    /// Position up to which the lookahead has requested the pages of commands.
    pub(crate) looked_until: u64,
    /// Number of keys of the commands between the current one and `looked_until`.
    pub(crate) looked_keys: usize,
    /// How many commands of a pipeline may run together.
    pub(crate) quota: PipelineQuota,
    /// The socket may have bytes to read.
    pub(crate) readable: bool,
    /// The socket may accept bytes.
    pub(crate) writable: bool,
    /// It is in one of the loop's run queues.
    pub(crate) queued: bool,
    /// It is in the middle of a command or of a pipeline that has had a turn, or its last turn took
    /// long: others come first.
    pub(crate) is_slow: bool,
    /// Its next command writes a contended key whose turn another loop has, or that a command has
    /// reserved; it is woken when this loop gets the turn.
    pub(crate) awaits_turn: bool,
    /// Number of bytes of a command that the parser has found and that has not begun: this one, or
    /// one that others are to be served before (`held.rs`).
    pub(crate) found: Option<NonZeroUsize>,
    /// The last command that was held for others.
    pub(crate) held: Option<Box<Held>>,
    /// It is in the loop's list of connections that wait for the log.
    pub(crate) gated: bool,
    /// The peer has announced that it sends nothing more.
    pub(crate) read_closed: bool,
    /// Everything that the peer sent was read.
    pub(crate) at_end: bool,
    /// The input holds no complete command.
    pub(crate) starved: bool,
    /// Execution has stopped until replies have been sent.
    pub(crate) stalled: bool,
    /// The peer accepts no further bytes.
    pub(crate) gone: bool,
    /// The socket has failed.
    pub(crate) broken: bool,
    /// When the loop is to wake it; equals its entry in the loop's timers.
    pub(crate) timer: Option<Instant>,
    /// Since when the socket accepts nothing of what is to be sent.
    pub(crate) blocked_since: Option<Instant>,
    /// Since when more messages wait for it than the soft limit.
    pub(crate) slow_since: Option<Instant>,
    /// Since when the peer has sent nothing more of a command that has begun.
    pub(crate) unfinished_since: Option<Instant>,
    /// When it was decided to close it; a peer that does not read gets little time after that.
    pub(crate) closing_since: Option<Instant>,
}

impl Connection {
    /// Returns a connection that was accepted at `now`, and has received nothing.
    pub(crate) fn new(
        stream: Stream,
        record: Arc<ClientRecord>,
        wake: WakerArc<TokenWake>,
        now: Instant,
        authenticated: bool,
    ) -> Self {
        Self {
            stream,
            record,
            waker: Waker::from(wake.clone()),
            wake,
            session: Session {
                authenticated,
                asked_since: (!authenticated).then_some(now),
                ..Session::default()
            },
            buffers: None,
            running: None,
            active: now,
            position: 0,
            looked_until: 0,
            looked_keys: 0,
            quota: PipelineQuota::default(),
            readable: true,
            writable: true,
            queued: false,
            is_slow: false,
            awaits_turn: false,
            found: None,
            held: None,
            gated: false,
            read_closed: false,
            at_end: false,
            starved: true,
            stalled: false,
            gone: false,
            broken: false,
            timer: None,
            blocked_since: None,
            slow_since: None,
            unfinished_since: None,
            closing_since: None,
        }
    }

    /// Returns the limits of the next request.
    #[inline]
    pub(crate) fn limits(&self, turn: &Turn<'_>) -> Limits {
        let unauthenticated = !self.session.authenticated;
        match &turn.data {
            Some(data) => Limits {
                whole_bytes_max: data.engine.whole_bytes_max,
                request_bytes_max: data.engine.request_bytes_max,
                unauthenticated,
                ..Limits::default()
            },
            None => Limits {
                whole_bytes_max: LOADING_WHOLE_BYTES_MAX,
                kept_bytes_max: LOADING_WHOLE_BYTES_MAX,
                request_bytes_max: LOADING_WHOLE_BYTES_MAX * 4,
                unauthenticated,
                ..Limits::default()
            },
        }
    }

    /// Returns the number of unsent bytes at which execution stops; `most` is the limit of
    /// authenticated peers.
    pub(crate) fn output_bytes_max(&self, most: usize) -> usize {
        if self.session.authenticated {
            most
        } else {
            most.min(UNAUTHENTICATED_OUTPUT_BYTES_MAX)
        }
    }

    /// Returns the number of unexecuted bytes of input.
    pub(crate) fn input_ahead(&self) -> usize {
        let buffers = self.buffers.as_ref();
        buffers.map_or(0, |buffers| buffers.input.len() - buffers.offset)
    }

    /// Returns the number of reply bytes in memory that were not sent.
    pub(crate) fn unsent(&self) -> usize {
        self.buffers
            .as_ref()
            .map_or(0, |buffers| buffers.output.unsent())
    }

    /// Returns the number of reply bytes that were not sent, including those that are still in the
    /// store.
    pub(crate) fn owed(&self) -> usize {
        self.buffers
            .as_ref()
            .map_or(0, |buffers| buffers.output.owed())
    }

    /// Returns true if the peer has accepted nothing of what is to be sent for longer than `most`.
    pub(crate) fn takes_nothing(&self, now: Instant, most: Duration) -> bool {
        let since = self.blocked_since;
        since.is_some_and(|time| now.saturating_duration_since(time) > most)
    }

    /// Returns true if the peer has sent nothing more of a command for longer than `most`.
    pub(crate) fn sends_nothing_more(&self, now: Instant, most: Duration) -> bool {
        let since = self.unfinished_since;
        since.is_some_and(|time| now.saturating_duration_since(time) > most)
    }

    /// Ends the turn's gate; returns the LSN of the last gate of its replies.
    pub(crate) fn close_gate(&mut self) -> Option<Lsn> {
        self.buffers
            .as_mut()
            .and_then(|buffers| buffers.output.close_gate())
    }

    /// Sends what may be sent. Returns true if a connection that its unsent output had stopped can
    /// continue, which is when half of its limit has been sent. `most` is the limit of
    /// authenticated peers.
    pub(crate) fn flush(&mut self, sent_bytes: &mut u64, most: usize) -> bool {
        let output_bytes_max = self.output_bytes_max(most);
        let Some(buffers) = &mut self.buffers else {
            return false;
        };
        while self.writable && !self.broken {
            let sendable = buffers.output.sendable();
            let written = if sendable.is_empty() {
                let Some(source) = buffers.output.stream() else {
                    break;
                };
                if source.is_done() {
                    buffers.output.end_stream();
                    continue;
                }
                match source.piece(&self.waker) {
                    Ok([]) => break,
                    Ok(piece) => {
                        let written = self.stream.write(piece);
                        if let Ok(count) = written {
                            source.consume(count);
                        }
                        written.map(|count| (count, true))
                    }
                    // The length of the value was sent already, so no error can be reported.
                    Err(_) => {
                        self.broken = true;
                        break;
                    }
                }
            } else {
                self.stream.write(sendable).map(|count| (count, false))
            };
            match written {
                Ok((0, _)) => self.broken = true,
                Ok((count, streamed)) => {
                    if !streamed {
                        buffers.output.advance(count);
                    }
                    *sent_bytes += count as u64;
                    self.blocked_since = None;
                    if self.closing_since.is_some() {
                        self.closing_since = Some(now());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = false;
                    self.blocked_since.get_or_insert_with(now);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.broken = true,
            }
        }
        if self.writable {
            // Nothing is left to send, or the server has to make progress first.
            self.blocked_since = None;
        }
        let goes_on = self.stalled && buffers.output.owed() <= output_bytes_max / 2;
        if goes_on {
            self.stalled = false;
        }
        goes_on
    }

    /// Returns true if nothing is left to do for this connection, ever.
    pub(crate) fn is_over(&self, stopping: bool) -> bool {
        if self.broken || self.record.is_killed() && !self.session.closing {
            return true;
        }
        if self.running.is_some() && (self.gone || self.read_closed && self.may_wait_for_ever()) {
            return true;
        }
        match self.session.closing {
            true => self.is_idle(),
            false => self.has_come_to_its_end() || stopping && self.is_idle(),
        }
    }

    /// Returns true if its peer has sent all that it ever will, and has the replies to that.
    fn has_come_to_its_end(&self) -> bool {
        self.at_end && (self.starved || self.buffers.is_none()) && self.is_idle()
    }

    /// Returns true if its peer has closed it, and nothing is left that others would wait for: it
    /// may be closed in the middle of a round.
    pub(crate) fn was_closed(&self) -> bool {
        self.broken && self.running.is_none() || self.has_come_to_its_end()
    }

    /// Returns true if no command runs, and no reply is left to be sent.
    fn is_idle(&self) -> bool {
        let owes = |of: &Buffers| of.output.unsent() > 0 || of.output.is_gated();
        self.running.is_none() && !self.buffers.as_deref().is_some_and(owes)
    }

    /// Returns true if its command waits for something that may never come, or for the end of a
    /// pause: the end of the server is not held up by that.
    pub(crate) fn may_wait_for_ever(&self) -> bool {
        let is_held = self.running.as_ref().is_some_and(|of| of.is_held);
        is_held || self.buffers.as_ref().is_some_and(|of| of.progress.waiting)
    }

    /// Returns when the loop has to give it a turn, whether anything happens or not.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let progress = self.buffers.as_ref().map(|buffers| &buffers.progress);
        let of_command = progress.and_then(|progress| progress.deadline);
        let interactive = self.session.interactive.as_ref();
        let idle = interactive.filter(|_| self.running.is_none());
        let of_next = || self.held_until();
        of_command.or_else(|| idle.map_or_else(of_next, |interactive| interactive.ends_at()))
    }

    /// Takes the buffers away if they hold nothing.
    pub(crate) fn take_idle_buffers(&mut self) -> Option<Box<Buffers>> {
        let buffers = self.buffers.as_ref()?;
        let idle = self.running.is_none() && buffers.input.is_empty() && buffers.output.is_idle();
        if idle { self.buffers.take() } else { None }
    }

    /// Returns the memory of its buffers, of its command, and of its queue of MULTI.
    pub(crate) fn memory(&self) -> usize {
        let buffers = self.buffers.as_ref().map_or(0, |of| of.memory());
        buffers + self.session.multi.as_ref().map_or(0, Multi::memory)
    }

    /// Publishes how much could not be sent, after all was tried.
    pub(crate) fn publish_unsent(&self) {
        let unsent = self.unsent() as u64;
        // Relaxed: a report. Written only when it changes.
        if self.record.output_bytes.load(Ordering::Relaxed) != unsent {
            self.record.output_bytes.store(unsent, Ordering::Relaxed);
        }
    }

    /// Publishes the state of this connection to other threads.
    pub(crate) fn publish(&mut self, now: Instant, now_ms: u64) {
        // Relaxed: reports.
        self.active = now;
        self.record.active_ms.store(now_ms, Ordering::Relaxed);
        self.record
            .input_bytes
            .store(self.input_ahead() as u64, Ordering::Relaxed);
        self.record
            .mail_bytes
            .store(self.mail_bytes() as u64, Ordering::Relaxed);
        self.record
            .waiting
            .store(self.may_wait_for_ever(), Ordering::Relaxed);
        self.session.publish(&self.record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_about_one_kibibyte() {
        let bytes = size_of::<Connection>() + size_of::<ClientRecord>() + size_of::<TokenWake>();
        assert!(bytes <= 1024, "{bytes} bytes");
    }
}
