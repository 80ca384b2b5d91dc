//! The loop of one core: events, wake-ups, turns of connections, the log, replies.
//!
//! A round has these steps, in this order: wait for events; take messages and wake-ups; let the
//! engine hand out its completions; give every runnable connection one turn; ask for one flush of
//! the log for all replies of the round; send what may be sent; do some cleaning. Nothing in a
//! round waits, except the wait for events at its beginning.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::task::Waker;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll};
use pando_sync::Arc;
use pando_sync::atomic::Ordering;
use pando_sync::time::{Duration, Instant, now};
use pandodb::Lsn;

use crate::cleaner::{Cleaned, Cleaner};
use crate::client::ClientRecord;
use crate::connection::{Connection, Next, SpareBuffers};
use crate::keyspace::DATABASES;
use crate::loop_data::{LoopData, Turn};
use crate::loop_handle::{LoopHandle, Message, Token, TokenWake};
use crate::shared::Shared;
use crate::slab::Slab;

/// Token of the loop's own waker; connections follow.
pub(crate) const WAKER: mio::Token = mio::Token(0);
/// How often the cleaner looks for what is due.
const CLEAN_INTERVAL: Duration = Duration::from_millis(100);
/// How often connections are looked over for timeouts.
const PATROL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a connection that is to be closed may take to read its last replies.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(10);
/// Buffers that are kept for the next busy connection.
const SPARE_BUFFERS: usize = 256;
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// An event loop; lives on its own thread.
pub(crate) struct EventLoop {
    index: usize,
    poll: Poll,
    shared: Arc<Shared>,
    handle: Arc<LoopHandle>,
    connections: Slab<Connection>,
    /// Connections that can go on.
    runnable: VecDeque<Token>,
    /// Connections that had their turn in this round.
    touched: Vec<Token>,
    /// Connections whose replies wait for the log.
    gated: Vec<Token>,
    /// Connections that want to be woken at a time.
    timers: Vec<(Instant, Token)>,
    data: Option<LoopData>,
    cleaner: Option<Cleaner>,
    /// The cleaner has something to do.
    cleaning: bool,
    spare: SpareBuffers,
    read_buffer: Box<[u8]>,
    reactor_wake: Arc<TokenWake>,
    durable_wake: Arc<TokenWake>,
    cleaner_wake: Arc<TokenWake>,
    durable_waker: Waker,
    /// The newest LSN whose durability was asked for, until the log answers.
    asked: Option<Lsn>,
    next_clean: Instant,
    next_patrol: Instant,
    stop_at: Option<Instant>,
}

impl EventLoop {
    pub(crate) fn new(
        index: usize,
        poll: Poll,
        handle: Arc<LoopHandle>,
        shared: Arc<Shared>,
    ) -> Self {
        let wake = |token| TokenWake::new(token, handle.clone());
        let durable_wake = wake(Token::Durable);
        let now = now();
        Self {
            index,
            poll,
            shared,
            connections: Slab::new(),
            runnable: VecDeque::new(),
            touched: Vec::new(),
            gated: Vec::new(),
            timers: Vec::new(),
            data: None,
            cleaner: None,
            cleaning: false,
            spare: Vec::new(),
            read_buffer: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
            reactor_wake: wake(Token::Reactor),
            durable_waker: Waker::from(durable_wake.clone()),
            durable_wake,
            cleaner_wake: wake(Token::Cleaner),
            asked: None,
            next_clean: now,
            next_patrol: now,
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
            if let Some(data) = &mut self.data {
                // A failed engine answers each command by itself.
                let _: pandodb::Result<usize> = data.reactor.poll();
            }
            // Completions that were just handed out are not left for the next round.
            self.handle.drain_woken(&mut woken);
            for token in woken.drain(..) {
                self.take_wake(token);
            }
            self.take_timers();
            self.give_turns();
            self.ask_for_durability();
            self.finish_round();
            self.clean();
            self.patrol();
            if let Some(stop_at) = self.stop_at
                && (self.connections.is_empty() || now() >= stop_at)
            {
                return Ok(());
            }
        }
    }

    /// How long the loop may sleep.
    fn timeout(&self) -> Option<Duration> {
        if !self.runnable.is_empty() || self.cleaning {
            return Some(Duration::ZERO);
        }
        let now = now();
        let times = self.timers.iter().map(|(time, _)| *time);
        let times = times
            .chain([self.next_patrol, self.next_clean])
            .chain(self.stop_at);
        let next = times.min()?;
        // One millisecond more: the wait is cut to milliseconds, and must not end too early.
        Some(next.saturating_duration_since(now) + Duration::from_millis(1))
    }

    fn enqueue(&mut self, token: Token) {
        if let Some(connection) = self.connections.get(token)
            && !connection.queued
        {
            connection.queued = true;
            self.runnable.push_back(token);
        }
    }

    fn take_events(&mut self, events: &Events) {
        for event in events {
            let Some(index) = event.token().0.checked_sub(1) else {
                continue;
            };
            let Some((token, connection)) = self.connections.at(index) else {
                continue;
            };
            connection.readable |= event.is_readable() || event.is_read_closed();
            connection.read_closed |= event.is_read_closed();
            connection.writable |= event.is_writable();
            if event.is_error() {
                connection.readable = true;
                connection.writable = true;
            }
            self.enqueue(token);
        }
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Accept(stream, address) => {
                if self.stop_at.is_none() && self.accept(stream, address).is_ok() {
                    return;
                }
                self.handle.connections.fetch_sub(1, Ordering::Relaxed);
            }
            Message::Kill(token) => self.touch(token),
            Message::EngineReady => self.engine_ready(),
            Message::Stop => {
                self.stop_at = Some(now() + self.shared.options.shutdown_timeout);
                for token in self.connections.tokens() {
                    // What waits for an event that may never come is not waited for.
                    if let Some(connection) = self.connections.get(token)
                        && connection
                            .buffers
                            .as_ref()
                            .is_some_and(|of| of.progress.waiting)
                    {
                        connection.broken = true;
                    }
                    self.touch(token);
                }
            }
        }
    }

    /// The connection is looked at when the round ends.
    fn touch(&mut self, token: Token) {
        if self.connections.get(token).is_some() {
            self.touched.push(token);
        }
    }

    fn take_wake(&mut self, token: Token) {
        match token {
            Token::Connection { .. } => {
                if let Some(connection) = self.connections.get(token) {
                    connection.wake.taken();
                    self.enqueue(token);
                }
            }
            Token::Reactor => self.reactor_wake.taken(),
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

    fn accept(&mut self, mut stream: TcpStream, address: SocketAddr) -> io::Result<()> {
        let local_address = stream.local_addr()?;
        stream.set_nodelay(true)?;
        let (shared, handle, loop_index) = (&self.shared, &self.handle, self.index);
        let registry = self.poll.registry();
        let mut registered = Ok(());
        let token = self.connections.insert(|token| {
            if let Token::Connection { index, .. } = token {
                let interest = Interest::READABLE | Interest::WRITABLE;
                let mio_token = mio::Token(index as usize + 1);
                registered = registry.register(&mut stream, mio_token, interest);
            }
            let id = shared.clients.next_id();
            let addresses = (address, local_address);
            let record = Arc::new(ClientRecord::new(id, addresses, loop_index, token));
            shared.clients.insert(record.clone());
            let wake = TokenWake::new(token, handle.clone());
            let authenticated = !shared.settings.has_password();
            Connection::new(stream, record, wake, now(), authenticated)
        });
        if let Err(error) = registered {
            if let Some(connection) = self.connections.remove(token) {
                self.shared.clients.remove(connection.record.id);
            }
            return Err(error);
        }
        self.handle.counters.accepted.add(1);
        self.enqueue(token);
        Ok(())
    }

    fn engine_ready(&mut self) {
        let Some(engine) = self.shared.engine() else {
            return;
        };
        let loops = self.shared.loops.len();
        let databases = (0..DATABASES)
            .filter(|number| number % loops == self.index)
            .collect();
        let waker = Waker::from(self.cleaner_wake.clone());
        self.cleaner = Some(Cleaner::new(&engine, databases, waker));
        match LoopData::new(engine, Waker::from(self.reactor_wake.clone())) {
            Ok(data) => self.data = Some(data),
            Err(error) => self.shared.fail(error),
        }
    }

    fn take_timers(&mut self) {
        if self.timers.is_empty() {
            return;
        }
        let now = now();
        let mut due = Vec::new();
        self.timers.retain(|(time, token)| {
            if *time <= now {
                due.push(*token);
            }
            *time > now
        });
        for token in due {
            self.enqueue(token);
        }
    }

    /// Gives each runnable connection one turn.
    fn give_turns(&mut self) {
        let mut turn = Turn {
            shared: &self.shared,
            handle: &self.handle,
            data: self.data.as_mut(),
            read_buffer: &mut self.read_buffer,
            clock: now(),
            stopping: self.stop_at.is_some(),
        };
        for _ in 0..self.runnable.len() {
            let Some(token) = self.runnable.pop_front() else {
                break;
            };
            let Some(connection) = self.connections.get(token) else {
                continue;
            };
            connection.queued = false;
            turn.clock = now();
            let next = connection.advance(&mut turn, &mut self.spare);
            connection.publish(turn.clock);
            if next == Next::Again {
                connection.queued = true;
                self.runnable.push_back(token);
            }
            let progress = connection.buffers.as_ref().map(|buffers| &buffers.progress);
            if let Some(deadline) = progress.and_then(|progress| progress.deadline)
                && !self.timers.contains(&(deadline, token))
            {
                self.timers.push((deadline, token));
            }
            self.touched.push(token);
        }
        if let Some(data) = &mut self.data {
            data.trim();
        }
    }

    /// Asks for one flush that serves all replies of this round.
    fn ask_for_durability(&mut self) {
        let mut newest: Option<Lsn> = None;
        for token in &self.touched {
            if let Some(connection) = self.connections.get(*token)
                && let Some(lsn) = connection.close_gate()
            {
                newest = newest.max(Some(lsn));
                if !connection.gated {
                    connection.gated = true;
                    self.gated.push(*token);
                }
            }
        }
        let Some(data) = &self.data else { return };
        if self.gated.is_empty() {
            return;
        }
        if self.asked.is_none() {
            // The log has answered the last question: what is still open is asked again.
            for token in &self.gated {
                let connection = self.connections.get(*token);
                newest = newest.max(connection.and_then(Connection::close_gate));
            }
        }
        let mut failed = None;
        if let Some(lsn) = newest.filter(|lsn| self.asked.is_none_or(|asked| *lsn > asked)) {
            match data.engine.db.when_durable(lsn, &self.durable_waker) {
                Ok(true) => {}
                Ok(false) => self.asked = Some(lsn),
                Err(error) => failed = Some(error),
            }
        }
        let durable = data.engine.db.durable_lsn();
        let mut gated = std::mem::take(&mut self.gated);
        gated.retain(|token| self.open_gates(*token, durable, failed.as_ref()));
        self.gated = gated;
    }

    /// Lets the replies of one connection go as far as the log is; true if some still wait.
    fn open_gates(&mut self, token: Token, durable: Lsn, failed: Option<&pandodb::Error>) -> bool {
        let Some(connection) = self.connections.get(token) else {
            return false;
        };
        let Some(buffers) = connection.buffers.as_mut() else {
            connection.gated = false;
            return false;
        };
        buffers.output.open_gates(durable);
        if let Some(error) = failed
            && buffers.output.is_gated()
        {
            buffers.output.fail_gates();
            connection.running = None;
            connection.session.closing = true;
            connection.write_error(&format!("MISCONF Errors writing to the log: {error}"));
        }
        let waits = connection
            .buffers
            .as_ref()
            .is_some_and(|of| of.output.is_gated());
        connection.gated = waits;
        self.touched.push(token);
        waits
    }

    /// Sends replies, takes buffers back, closes what is over.
    fn finish_round(&mut self) {
        let mut output_bytes = 0;
        let output_bytes_max = self.shared.settings.output_bytes_max();
        let stopping = self.stop_at.is_some();
        let mut touched = std::mem::take(&mut self.touched);
        for token in touched.drain(..) {
            let Some(connection) = self.connections.get(token) else {
                continue;
            };
            let goes_on = connection.flush(&mut output_bytes, output_bytes_max);
            if connection.is_over(stopping) {
                self.close(token);
                continue;
            }
            if connection.session.closing && connection.closing_since.is_none() {
                connection.closing_since = Some(now());
            }
            if let Some(mut buffers) = connection.take_idle_buffers()
                && self.spare.len() < SPARE_BUFFERS
            {
                buffers.recycle();
                self.spare.push(buffers);
            }
            if goes_on {
                self.enqueue(token);
            }
        }
        self.touched = touched;
        if output_bytes > 0 {
            self.handle.counters.output_bytes.add(output_bytes);
        }
    }

    fn close(&mut self, token: Token) {
        let Some(mut connection) = self.connections.remove(token) else {
            return;
        };
        self.shared.clients.remove(connection.record.id);
        // Relaxed: a hint for the acceptor.
        self.handle.connections.fetch_sub(1, Ordering::Relaxed);
        // A socket that cannot be deregistered is closed all the same.
        let _: io::Result<()> = self.poll.registry().deregister(&mut connection.stream);
    }

    /// Removes what has ended.
    fn clean(&mut self) {
        let now = now();
        let (Some(data), Some(cleaner)) = (&mut self.data, &mut self.cleaner) else {
            self.next_clean = now + PATROL_INTERVAL;
            return;
        };
        if now >= self.next_clean {
            let entries = cleaner.has_entries(&data.engine);
            self.cleaning |= entries;
            self.next_clean = now
                + if entries {
                    CLEAN_INTERVAL
                } else {
                    PATROL_INTERVAL
                };
        }
        if self.cleaning && self.stop_at.is_none() {
            let counters = &self.handle.counters;
            let cleaned = cleaner.step(&data.engine, &mut data.reactor, counters);
            self.cleaning = cleaned == Cleaned::More;
        } else {
            self.cleaning = false;
        }
    }

    /// Closes connections that take too long.
    fn patrol(&mut self) {
        let now = now();
        if now < self.next_patrol {
            return;
        }
        self.next_patrol = now + PATROL_INTERVAL;
        let idle_timeout = self.shared.settings.timeout();
        let handshake = self.shared.options.handshake_timeout;
        for token in self.connections.tokens() {
            let Some(connection) = self.connections.get(token) else {
                continue;
            };
            let since = |time: Instant| now.saturating_duration_since(time);
            let idle = connection.running.is_none() && connection.unsent() == 0;
            let late = !connection.session.authenticated && since(connection.opened) > handshake
                || idle && idle_timeout.is_some_and(|most| since(connection.active) > most)
                || connection
                    .closing_since
                    .is_some_and(|time| since(time) > CLOSING_TIMEOUT);
            if late {
                self.close(token);
            }
        }
    }
}
