//! What a thread of `bench resp` does: keeps the pipelines of its connections full, in a closed
//! loop or at a rate, and receives the answers.

use std::net::SocketAddr;

use mio::{Events, Interest, Poll, Token};
use pando_stats::Histogram;
use pando_sync::time::{self, Duration, Instant};

use super::command::{Commands, RespPlan};
use super::connection::Connection;
use crate::error::{Error, Result};
use crate::phase::{Calls, Done};

/// Maximum wait for events, so that the end of a run is noticed.
const WAIT: Duration = Duration::from_millis(50);
/// Waits are in whole milliseconds: less than this before a pipeline is due, the thread does not
/// wait.
const SPIN: Duration = Duration::from_millis(2);

/// The connections of one thread.
pub(super) struct Client<'a> {
    plan: &'a RespPlan<'a>,
    commands: Commands<'a>,
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    idle: Vec<usize>,
    /// Number of keys whose answers have not arrived.
    on_the_way: u64,
    /// Nothing is left to send.
    is_over: bool,
    /// In an open loop, when the next pipeline is due, and the time between two.
    due: Option<(Instant, Duration)>,
    times: Histogram,
}

fn failed(source: std::io::Error) -> Error {
    Error::Io {
        during: "waiting for the server".to_owned(),
        source,
    }
}

impl<'a> Client<'a> {
    /// Opens `connections` connections to `address`.
    pub(super) fn new(
        plan: &'a RespPlan<'a>,
        commands: Commands<'a>,
        address: SocketAddr,
        connections: usize,
    ) -> Result<Self> {
        let poll = Poll::new().map_err(failed)?;
        let mut made = Vec::new();
        for index in 0..connections {
            let mut connection = Connection::new(address)?;
            let both = Interest::READABLE | Interest::WRITABLE;
            poll.registry()
                .register(&mut connection.stream, Token(index), both)
                .map_err(failed)?;
            made.push(connection);
        }
        let options = plan.options;
        let pipeline_ops = options.pipeline as f64 * plan.command_ops() as f64;
        let step = |rate| Duration::from_secs_f64(pipeline_ops * options.threads as f64 / rate);
        let rate = options.rate.filter(|_| plan.workload.is_some());
        Ok(Self {
            plan,
            commands,
            poll,
            events: Events::with_capacity(connections.max(1)),
            idle: (0..connections).rev().collect(),
            connections: made,
            on_the_way: 0,
            is_over: false,
            due: rate.map(|rate| (time::now(), step(rate))),
            times: Histogram::default(),
        })
    }

    /// Starts pipelines on connections that wait for no answer.
    fn start(&mut self, limit: u64) -> Result<()> {
        let now = time::now();
        while !self.is_over && self.on_the_way < limit {
            if self.due.is_some_and(|(due, _)| due > now) {
                break;
            }
            let Some(index) = self.idle.pop() else {
                break;
            };
            let begun = match &mut self.due {
                None => now,
                Some((due, step)) => {
                    let begun = *due;
                    *due += *step;
                    begun
                }
            };
            let left = limit - self.on_the_way;
            let pipeline = self.plan.options.pipeline;
            let connection = &mut self.connections[index];
            let ops = connection.start(&mut self.commands, pipeline, left, begun)?;
            self.on_the_way += ops;
            if ops == 0 {
                self.is_over = true;
                self.idle.push(index);
            }
        }
        Ok(())
    }

    /// Waits for answers and receives them.
    fn take(&mut self) -> Result<Done> {
        let mut wait = WAIT;
        if let Some((due, _)) = self.due
            && !self.idle.is_empty()
        {
            let left = due.saturating_duration_since(time::now());
            wait = wait.min(left.checked_sub(SPIN).unwrap_or_default());
        }
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            polled => polled.map_err(failed)?,
        }
        let mut done = Done::default();
        for event in &self.events {
            let index = event.token().0;
            let connection = &mut self.connections[index];
            if event.is_writable() {
                connection.flush()?;
            }
            if event.is_readable() && !connection.is_idle() {
                let part = connection.take(&mut self.commands, &mut self.times)?;
                done.ops += part.ops;
                done.found += part.found;
                if connection.is_idle() {
                    self.idle.push(index);
                }
            }
        }
        self.on_the_way -= done.ops;
        Ok(done)
    }
}

impl Calls for Client<'_> {
    fn begin(&mut self, start: Instant) {
        self.times = Histogram::default();
        if let Some((due, _)) = &mut self.due {
            *due = start;
        }
    }

    fn call(&mut self, limit: u64) -> Result<Option<Done>> {
        self.start(limit)?;
        if self.is_over && self.on_the_way == 0 {
            return Ok(None);
        }
        self.take().map(Some)
    }

    fn end(&mut self) -> Result<()> {
        while self.on_the_way > 0 {
            self.take()?;
        }
        Ok(())
    }

    fn times(&mut self) -> Option<Histogram> {
        Some(std::mem::take(&mut self.times))
    }
}
