//! Requests in flight of a faulty directory, which complete in an order that a seed decides.
//!
//! A read or write takes effect either when it is submitted or when it is reaped, so a caller with
//! a write and an overlapping read in flight may see either result. Every reap may hold some
//! requests back, and wakes the loop for them. Writes of a dropped channel that have not taken
//! effect never do.

use std::task::Waker;

use pando_sync::time::Duration;

use super::file::FaultyFile;
use super::random::Random;
use crate::buffer::IoBuf;
use crate::device::{Channel, Completion, File, REAP_MAX};

#[derive(Debug)]
enum Flight {
    Done(Completion),
    Waiting {
        write: bool,
        file: FaultyFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    },
}

impl Flight {
    fn into_buffer(self) -> IoBuf {
        match self {
            Self::Done(completion) => completion.buffer,
            Self::Waiting { buffer, .. } => buffer,
        }
    }

    fn land(self) -> Completion {
        match self {
            Self::Done(completion) => completion,
            Self::Waiting {
                write,
                file,
                offset,
                mut buffer,
                tag,
            } => {
                let result = if write {
                    file.write_at(&buffer, offset)
                } else {
                    file.read_at(&mut buffer, offset)
                };
                Completion {
                    tag,
                    buffer,
                    result,
                }
            }
        }
    }
}

/// Requests in flight of one event loop.
#[derive(Debug)]
pub struct FaultyChannel {
    random: Random,
    flights: Vec<Flight>,
    depth: usize,
    notify: Waker,
    /// `wait` has returned because of a completion, so the next reap has one.
    waited: bool,
}

impl FaultyChannel {
    pub(super) fn new(random: Random, depth: usize, notify: Waker) -> Self {
        Self {
            random,
            flights: Vec::with_capacity(depth),
            depth,
            notify,
            waited: false,
        }
    }
}

impl FaultyChannel {
    fn submit(&mut self, waiting: Flight) -> Result<(), IoBuf> {
        if self.flights.len() >= self.depth {
            return Err(waiting.into_buffer());
        }
        let flight = if self.random.once_in(2) {
            Flight::Done(waiting.land())
        } else {
            waiting
        };
        self.flights.push(flight);
        self.notify.wake_by_ref();
        Ok(())
    }
}

impl Channel for FaultyChannel {
    type File = FaultyFile;

    fn submit_read(
        &mut self,
        file: &FaultyFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        self.submit(Flight::Waiting {
            write: false,
            file: file.clone(),
            offset,
            buffer,
            tag,
        })
    }

    fn submit_write(
        &mut self,
        file: &FaultyFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        self.submit(Flight::Waiting {
            write: true,
            file: file.clone(),
            offset,
            buffer,
            tag,
        })
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize {
        let ready = self.flights.len().min(REAP_MAX);
        let least = usize::from(self.waited).min(ready);
        let count = least + self.random.index(ready - least + 1);
        self.waited = false;
        for _ in 0..count {
            let index = self.random.index(self.flights.len());
            completions.push(self.flights.swap_remove(index).land());
        }
        if !self.flights.is_empty() {
            self.notify.wake_by_ref();
        }
        count
    }

    fn wait(&mut self, _timeout: Option<Duration>) {
        self.waited = true;
    }

    fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Returns a waker without effect, since no wait of this channel blocks.
    fn waker(&mut self) -> Waker {
        Waker::noop().clone()
    }
}
