//! The event loop of one core: events, wake-ups, turns of connections, the log, replies.
//!
//! A round has these steps, in this order: wait for events; take messages and wake-ups; let the
//! engine deliver its completions; give every runnable connection one turn, and run what waits for
//! the end of these turns; request one flush of the log for all their replies; send the replies
//! that may be sent; do the same for connections whose commands take long, as far as there is time
//! ([`super::turns`]); send connections whose scripts take long to script threads; do some
//! cleaning.
//! Nothing in a round blocks, except the wait for events at its beginning.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::task::Waker;

use mio::{Events, Poll};
use pando_stats::Ticker;
use pando_sync::atomic::Ordering;
use pando_sync::time::{Duration, Instant, now};
use pando_sync::{Arc, WakerArc};
use pandodb::Lsn;
use pandodb::device::REAP_MAX;
use pandodb::nonblocking::ValidatedBatch;

use crate::connection::joining::Joined;
use crate::connection::loop_data::LoopData;
use crate::connection::{Connection, SpareBuffers};
use crate::context::CommandIndex;
use crate::data::cleaner::Cleaner;
use crate::event_loop::away::Away;
use crate::event_loop::slab::Slab;
use crate::event_loop::timers::Timers;
use crate::loop_handle::{LoopHandle, Token, TokenWake};
use crate::script_threads::ScriptThreads;
use crate::shared::Shared;

/// Token of the loop's own waker; connections have the tokens after it.
pub(crate) const WAKER: mio::Token = mio::Token(0);
/// Maximum number of idle buffers that are kept for connections that become busy.
const SPARE_BUFFERS: usize = 256;
/// Number of these that keep the memory that a deep pipeline needs.
const LARGE_SPARE_BUFFERS: usize = 8;
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// An event loop; lives on a thread of its own.
pub(crate) struct EventLoop {
    pub(super) index: usize,
    pub(super) poll: Poll,
    pub(super) shared: Arc<Shared>,
    pub(super) commands: Arc<CommandIndex>,
    pub(super) handle: Arc<LoopHandle>,
    pub(super) connections: Slab<Connection>,
    /// Connections that can continue.
    pub(super) runnable: VecDeque<Token>,
    /// Those of them whose commands take long.
    pub(super) slow: VecDeque<Token>,
    /// Connections that had a turn in this round, or are to be checked at its end.
    pub(super) touched: Vec<Token>,
    /// Connections whose replies wait for the log.
    pub(super) gated: Vec<Token>,
    /// Wake-up times of connections.
    pub(super) timers: Timers,
    /// The engine's side of the loop; `None` until the engine is open.
    pub(super) data: Option<LoopData>,
    pub(super) cleaner: Option<Cleaner>,
    pub(super) script_threads: Arc<ScriptThreads>,
    /// Commands that run at the end of this round; empty between two.
    pub(super) joined: Vec<(Joined, Token)>,
    /// Connections whose commands go on on script threads after this round.
    pub(super) leaving: Vec<Token>,
    /// Those whose commands do.
    pub(super) away: BTreeMap<Token, Away>,
    /// Commits of connections that were closed meanwhile.
    pub(super) left_commits: Vec<ValidatedBatch>,
    /// The engine has completions that were not taken yet.
    pub(super) completions: bool,
    /// The cleaner has work left.
    pub(super) cleaning: bool,
    /// It has the turn of a contended key, and has not used it.
    pub(super) has_turn: bool,
    pub(super) spare: SpareBuffers,
    pub(super) read_buffer: Box<[u8]>,
    pub(super) reactor_wake: WakerArc<TokenWake>,
    pub(super) durable_wake: WakerArc<TokenWake>,
    pub(super) cleaner_wake: WakerArc<TokenWake>,
    pub(super) durable_waker: Waker,
    /// The newest LSN whose durability was requested; `None` once the log has answered.
    pub(super) asked: Option<Lsn>,
    pub(super) next_clean: Instant,
    /// End of the cleaner's last turn.
    pub(super) last_clean: Instant,
    pub(super) next_housekeeping: Instant,
    /// When the server has to end at the latest; set once it stops.
    pub(super) stop_at: Option<Instant>,
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        self.leave_away();
        // Who waits for a message to arrive here does not wait any longer.
        self.handle.close();
    }
}

impl EventLoop {
    /// Returns a loop without connections; `handle` wakes its `poll`.
    pub(crate) fn new(
        index: usize,
        poll: Poll,
        handle: Arc<LoopHandle>,
        (shared, commands, script_threads): (Arc<Shared>, Arc<CommandIndex>, Arc<ScriptThreads>),
    ) -> Self {
        let wake = |token| TokenWake::new(token, handle.clone());
        let durable_wake = wake(Token::Durable);
        let now = now();
        Self {
            index,
            poll,
            shared,
            commands,
            connections: Slab::new(),
            runnable: VecDeque::new(),
            slow: VecDeque::new(),
            touched: Vec::new(),
            gated: Vec::new(),
            timers: Timers::default(),
            data: None,
            cleaner: None,
            script_threads,
            joined: Vec::new(),
            leaving: Vec::new(),
            away: BTreeMap::new(),
            left_commits: Vec::new(),
            completions: false,
            cleaning: false,
            has_turn: false,
            spare: Vec::new(),
            read_buffer: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
            reactor_wake: wake(Token::Reactor),
            durable_waker: Waker::from(durable_wake.clone()),
            durable_wake,
            cleaner_wake: wake(Token::Cleaner),
            asked: None,
            next_clean: now,
            last_clean: now,
            next_housekeeping: now,
            stop_at: None,
            handle,
        }
    }

    /// Runs until the server stops.
    ///
    /// # Errors
    /// The wait for events failed.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let (mut messages, mut woken) = (Vec::new(), Vec::new());
        loop {
            let timeout = self.timeout();
            let timeout = if self.handle.fall_asleep() {
                timeout
            } else {
                Some(Duration::ZERO)
            };
            let polled = self.poll.poll(&mut events, timeout);
            self.handle.awake();
            let begun = now();
            match polled {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            self.take_events(&events);
            self.handle.drain_inbox(&mut messages);
            for message in messages.drain(..) {
                self.take_message(message);
            }
            self.handle.drain_woken(&mut woken);
            for token in woken.drain(..) {
                self.take_wake(token);
            }
            self.completions = false;
            if let Some(data) = &mut self.data {
                // The commands find out by themselves that the engine has failed.
                let count = data.reactor.poll().unwrap_or(0);
                // Completions beyond one harvest raise no new event.
                self.completions = count >= REAP_MAX;
            }
            // Connections that these completions have woken get their turn in this round.
            // Connections that are woken by later completions get it in the next, and the loop does
            // not sleep before that.
            self.handle.drain_woken(&mut woken);
            for token in woken.drain(..) {
                self.take_wake(token);
            }
            self.take_timers();
            self.end_left_commits();
            self.tell_left();
            self.give_turns(begun);
            self.send_away();
            let at = now();
            self.clean(at, begun);
            self.housekeeping(at);
            if let Some(data) = &mut self.data {
                // I/O that this round has started goes to the device before the loop sleeps.
                data.reactor.flush();
            }
            if let Some(stop_at) = self.stop_at
                && (self.connections.is_empty() || now() >= stop_at)
            {
                return Ok(());
            }
        }
    }

    /// Returns how long the loop may sleep; `None`: until an event.
    fn timeout(&self) -> Option<Duration> {
        let data = self.data.as_ref();
        let has_left = data.is_some_and(|data| !data.left_told.is_empty());
        let has_work = self.cleaning || self.completions || self.has_turn || has_left;
        if !self.runnable.is_empty() || !self.slow.is_empty() || has_work {
            return Some(Duration::ZERO);
        }
        let now = now();
        let times = [self.next_housekeeping, self.next_clean].into_iter();
        let times = times.chain(self.timers.next()).chain(self.stop_at);
        let next = times.min()?;
        // One millisecond more: the wait is truncated to milliseconds, and must not end too early.
        Some(next.saturating_duration_since(now) + Duration::from_millis(1))
    }

    /// Puts the connection into its run queue, unless it is there already.
    pub(super) fn enqueue(&mut self, token: Token) {
        if let Some(connection) = self.connections.get(token)
            && !connection.queued
        {
            connection.queued = true;
            match connection.is_slow {
                true => self.slow.push_back(token),
                false => self.runnable.push_back(token),
            }
        }
    }

    fn take_events(&mut self, events: &Events) {
        for event in events {
            let Some(index) = event.token().0.checked_sub(1) else {
                continue;
            };
            let Some((token, connection)) = self.connections.at(index) else {
                self.note_event(index, event);
                continue;
            };
            connection.readable |= event.is_readable() || event.is_read_closed();
            connection.read_closed |= event.is_read_closed();
            connection.writable |= event.is_writable();
            if event.is_error() || event.is_write_closed() {
                connection.gone = true;
                connection.readable = true;
                connection.writable = true;
            }
            self.enqueue(token);
            if event.is_read_closed() {
                self.close_first(token);
            }
        }
    }

    /// Gives the last in the run queue, if it is `token`, its turn before the others.
    fn close_first(&mut self, token: Token) {
        if self.runnable.pop_back_if(|last| *last == token).is_some() {
            self.runnable.push_front(token);
        }
    }

    /// Has the connection checked at the end of the round.
    pub(super) fn touch(&mut self, token: Token) {
        if self.connections.get(token).is_some() {
            self.touched.push(token);
        }
    }

    fn take_wake(&mut self, token: Token) {
        match token {
            Token::Connection { .. } => {
                if let Some(connection) = self.connections.get(token) {
                    connection.wake.taken();
                    connection.awaits_turn = false;
                    self.enqueue(token);
                } else {
                    self.wake_away(token);
                }
            }
            Token::Reactor => {
                self.reactor_wake.taken();
                self.completions = true;
            }
            Token::Durable => {
                self.durable_wake.taken();
                self.asked = None;
            }
            Token::Cleaner => {
                self.cleaner_wake.taken();
                self.cleaning = true;
            }
        }
    }

    fn take_timers(&mut self) {
        if self.timers.next().is_none() {
            return;
        }
        let now = now();
        while let Some(token) = self.timers.pop_due(now) {
            if let Some(connection) = self.connections.get(token) {
                connection.timer = None;
            }
            self.enqueue(token);
        }
    }

    /// Sends replies, takes buffers back, and closes connections that are over. Returns true if the
    /// round is to end, so that clients are closed for their memory.
    pub(super) fn finish_turns(&mut self) -> bool {
        let (mut output_bytes, mut is_short) = (0, false);
        let output_bytes_max = self.shared.output_bytes_max();
        let stopping = self.stop_at.is_some();
        let mut touched = std::mem::take(&mut self.touched);
        for token in touched.drain(..) {
            let Some(connection) = self.connections.get(token) else {
                continue;
            };
            let goes_on = connection.flush(&mut output_bytes, output_bytes_max)
                | connection.has_room_for_messages();
            if connection.is_over(stopping) {
                self.close(token);
                continue;
            }
            connection.publish_unsent();
            if connection.session.closing && connection.closing_since.is_none() {
                connection.closing_since = Some(now());
            }
            if let Some(mut buffers) = connection.take_idle_buffers()
                && self.spare.len() < SPARE_BUFFERS
            {
                let is_large = self.spare.len() < LARGE_SPARE_BUFFERS;
                buffers.recycle(is_large);
                self.spare.push(buffers);
            }
            let memory = &self.shared.clients.memory;
            // One that was away may have grown there.
            is_short |= memory.count(&connection.record.held, connection.memory());
            if goes_on {
                self.enqueue(token);
            }
        }
        self.touched = touched;
        if is_short {
            self.shared.evict();
        }
        // Relaxed: a figure for reports. Written only when it changes.
        if self.handle.timers.load(Ordering::Relaxed) != self.timers.len() {
            self.handle
                .timers
                .store(self.timers.len(), Ordering::Relaxed);
        }
        if output_bytes > 0 {
            self.shared
                .statistics
                .tick(Ticker::OutputBytes, output_bytes);
        }
        is_short
    }
}
