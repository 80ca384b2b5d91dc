//! The HTTP endpoint: `/metrics` for Prometheus, `/healthz` and `/readyz` for probes, and at `/`
//! the dashboard, which draws `/stats.json`.
//!
//! It has one thread of its own and a few connections, and blocks on none of them: a slow peer has
//! a deadline, and when all slots are taken the oldest connection is closed. The event loops pay
//! nothing for it but the cost of reading their statistics.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use pando_sync::time::{Duration, Instant, now};

use crate::error::Error;
use crate::http::request::{REQUEST_BYTES_MAX, Request, parse, reply};
use crate::report::dashboard::{page, stats_json};
use crate::report::metrics_text::{not_ready, render};
use crate::shared::{Shared, Stage};

/// Maximum number of connections.
const EXCHANGES_MAX: usize = 32;
/// Time limit of a request and its reply.
const EXCHANGE_TIME: Duration = Duration::from_secs(5);
/// Time that the peer has to receive the reply before its connection is closed.
const LINGER_TIME: Duration = Duration::from_secs(1);
const WAKER: Token = Token(0);
/// Token of the first listener; connections come after the listeners, each with a token of its own.
const LISTENERS: usize = 1;
const PLAIN: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const OTHERS: &str = "there are /, /stats.json, /metrics, /healthz and /readyz\n";
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// One request and its reply.
struct Exchange {
    stream: TcpStream,
    token: Token,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    deadline: Instant,
    /// Everything was sent, and only the end of the peer's input is waited for.
    lingers: bool,
}

/// What happens to an exchange next.
#[derive(PartialEq, Eq)]
enum Next {
    Wait,
    Close,
}

/// The endpoint, before and while it serves.
pub(crate) struct HttpEndpoint {
    poll: Poll,
    listeners: Vec<TcpListener>,
    /// Addresses that it listens on, with their actual ports.
    pub(crate) addresses: Vec<SocketAddr>,
    exchanges: Vec<Exchange>,
    next_token: usize,
}

impl HttpEndpoint {
    /// Listens on `addresses`; the waker that is returned ends [`HttpEndpoint::run`] once the
    /// server stops.
    ///
    /// # Errors
    /// An address is taken or does not belong to this machine, or the system is out of resources.
    pub(crate) fn bind(addresses: &[SocketAddr]) -> Result<(Self, mio::Waker), Error> {
        let io = |operation| move |source| Error::Io { operation, source };
        let poll = Poll::new().map_err(io("waiting for requests"))?;
        let waker = mio::Waker::new(poll.registry(), WAKER).map_err(io("making a waker"))?;
        let (mut listeners, mut bound) = (Vec::new(), Vec::new());
        for address in addresses {
            let address = *address;
            let failed = |source| Error::Listen { address, source };
            let mut listener = TcpListener::bind(address).map_err(failed)?;
            bound.push(listener.local_addr().map_err(failed)?);
            let token = Token(LISTENERS + listeners.len());
            poll.registry()
                .register(&mut listener, token, Interest::READABLE)
                .map_err(failed)?;
            listeners.push(listener);
        }
        let endpoint = Self {
            poll,
            next_token: LISTENERS + listeners.len(),
            listeners,
            addresses: bound,
            exchanges: Vec::new(),
        };
        Ok((endpoint, waker))
    }

    /// Serves until the server stops; blocks.
    ///
    /// # Errors
    /// The wait for events failed.
    pub(crate) fn run(mut self, shared: &Shared) -> io::Result<()> {
        let mut events = Events::with_capacity(64);
        while shared.stage() != Stage::Stopping {
            let deadline = self.exchanges.iter().map(|of| of.deadline).min();
            // One millisecond more, since the wait is truncated to milliseconds.
            let wait = deadline
                .map(|time| time.saturating_duration_since(now()) + Duration::from_millis(1));
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let ready: Vec<Token> = events.iter().map(mio::event::Event::token).collect();
            let first = LISTENERS + self.listeners.len();
            if ready.iter().any(|token| token.0 < first) {
                self.accept();
            }
            let time = now();
            self.exchanges.retain_mut(|exchange| {
                let is_ready = ready.contains(&exchange.token);
                let next = match is_ready {
                    true => exchange.advance(shared),
                    false => Next::Wait,
                };
                next == Next::Wait && time < exchange.deadline
            });
        }
        Ok(())
    }

    /// Accepts all waiting connections. A failure concerns one peer, or passes: connections that
    /// still wait are accepted with the next event.
    fn accept(&mut self) {
        for listener in &self.listeners {
            loop {
                let mut stream = match listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if is_of_one_peer(&error) => continue,
                    Err(_) => break,
                };
                let token = Token(self.next_token);
                self.next_token += 1;
                let interest = Interest::READABLE | Interest::WRITABLE;
                let registry = self.poll.registry();
                if registry.register(&mut stream, token, interest).is_err() {
                    continue;
                }
                if self.exchanges.len() == EXCHANGES_MAX {
                    self.exchanges.remove(0);
                }
                self.exchanges.push(Exchange {
                    stream,
                    token,
                    input: Vec::new(),
                    output: Vec::new(),
                    sent: 0,
                    deadline: now() + EXCHANGE_TIME,
                    lingers: false,
                });
            }
        }
    }
}

impl Exchange {
    fn advance(&mut self, shared: &Shared) -> Next {
        match self.try_advance(shared) {
            Ok(next) => next,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Next::Wait,
            Err(_) => Next::Close,
        }
    }

    fn try_advance(&mut self, shared: &Shared) -> io::Result<Next> {
        while self.output.is_empty() {
            let count = self.read()?;
            match parse(&self.input) {
                Request::Incomplete if count == 0 => return Ok(Next::Close),
                Request::Incomplete => {}
                Request::Bad(status) => self.output = reply(status, PLAIN, "", false),
                Request::Get { path, head } => self.output = answer(shared, path, head),
            }
        }
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Ok(Next::Close),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if !self.lingers {
            // Closing a socket with unread input would reset the connection, and the peer could
            // lose the reply.
            self.lingers = true;
            self.deadline = self.deadline.min(now() + LINGER_TIME);
            self.stream.shutdown(Shutdown::Write)?;
        }
        // Read until the peer closes, or has sent more than a request may have.
        let mut left = REQUEST_BYTES_MAX;
        loop {
            self.input.clear();
            match self.read()? {
                0 => return Ok(Next::Close),
                count if count > left => return Ok(Next::Close),
                count => left -= count,
            }
        }
    }

    /// Appends the bytes that have arrived to the input; returns their number.
    fn read(&mut self) -> io::Result<usize> {
        let mut chunk = [0; 2048];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(count) => {
                    self.input.extend_from_slice(&chunk[..count]);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns true for failures that say nothing about the next connection.
fn is_of_one_peer(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == io::ErrorKind::Interrupted || kind == io::ErrorKind::ConnectionAborted
}

fn answer(shared: &Shared, path: &str, head: bool) -> Vec<u8> {
    match path {
        "/metrics" => reply(200, EXPOSITION, &render(shared), head),
        "/healthz" => reply(200, PLAIN, "ok\n", head),
        "/readyz" => match not_ready(shared) {
            None => reply(200, PLAIN, "ready\n", head),
            Some(reason) => reply(503, PLAIN, &format!("{reason}\n"), head),
        },
        "/" => reply(200, HTML, &page(), head),
        "/stats.json" => reply(200, JSON, &stats_json(shared), head),
        _ => reply(404, PLAIN, OTHERS, head),
    }
}
