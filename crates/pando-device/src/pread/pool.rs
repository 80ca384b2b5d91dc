//! The threads that read, and the channels that feed them.
//!
//! One queue for all channels of a device, under one lock; a request owns its buffer, its file and
//! its channel's completions, so a channel may go away at any time. Threads end when the last
//! handle of the device (a clone, or a channel) has gone and the queue is empty.

use std::collections::VecDeque;
use std::task::Waker;

use pando_sync::thread::{self, JoinHandle};
use pando_sync::time::Duration;
use pando_sync::{Arc, Condvar, Mutex};

use super::file::PreadFile;
use crate::buffer::IoBuf;
use crate::completions::Completions;
use crate::device::{Channel, Completion, File};
use crate::error::{Error, Result};

/// A read that waits for a thread.
#[derive(Debug)]
struct Request {
    file: PreadFile,
    offset: u64,
    buffer: IoBuf,
    tag: u64,
    completions: Arc<Completions>,
}

#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<Request>,
    /// Threads that wait for a request.
    idle: usize,
    stopping: bool,
    /// Sum of the depths of all channels: so many requests find room without an allocation.
    depths: usize,
}

#[derive(Debug, Default)]
struct Requests {
    queue: Mutex<Queue>,
    filled: Condvar,
}

/// The threads of one device. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Pool {
    requests: Arc<Requests>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    threads_max: usize,
}

impl Pool {
    /// A pool whose `threads_max` (at least 1) threads start with the first channel.
    pub(super) fn new(threads_max: usize) -> Self {
        Self {
            requests: Arc::default(),
            threads: Mutex::new(Vec::new()),
            threads_max: threads_max.max(1),
        }
    }

    fn start(&self) -> Result<()> {
        let mut threads = self.threads.lock();
        while threads.len() < self.threads_max {
            let requests = self.requests.clone();
            let thread = thread::Builder::new()
                .name(format!("pando-read-{}", threads.len()))
                .spawn(move || requests.serve())
                .map_err(|error| Error::from_io("start", "read threads", error))?;
            threads.push(thread);
        }
        Ok(())
    }

    /// A channel, whose handle keeps the pool alive.
    pub(super) fn channel(self: &Arc<Self>, depth: usize, notify: Waker) -> Result<PreadChannel> {
        self.start()?;
        {
            let mut queue = self.requests.queue.lock();
            queue.depths += depth;
            let missing = queue.depths - queue.requests.len().min(queue.depths);
            queue.requests.reserve(missing);
        }
        Ok(PreadChannel {
            pool: self.clone(),
            completions: Arc::new(Completions::new(depth, notify)),
            depth,
            in_flight: 0,
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.requests.queue.lock().stopping = true;
        self.requests.filled.notify_all();
        let this = thread::current().id();
        for thread in self.threads.lock().drain(..) {
            // A waker that runs on a thread of the pool may drop the last handle.
            if thread.thread().id() != this {
                thread
                    .join()
                    .expect("reading returns errors and does not panic");
            }
        }
    }
}

impl Drop for PreadChannel {
    fn drop(&mut self) {
        self.pool.requests.queue.lock().depths -= self.depth;
    }
}

impl Requests {
    fn push(&self, request: Request) {
        let mut queue = self.queue.lock();
        queue.requests.push_back(request);
        let idle = queue.idle > 0;
        drop(queue);
        if idle {
            self.filled.notify_one();
        }
    }

    /// Life of a thread of the pool.
    fn serve(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(request) = queue.requests.pop_front() {
                drop(queue);
                request.perform();
                queue = self.queue.lock();
            } else if queue.stopping {
                return;
            } else {
                queue.idle += 1;
                queue = self.filled.wait(queue);
                queue.idle -= 1;
            }
        }
    }
}

impl Request {
    fn perform(self) {
        let Self {
            file,
            offset,
            mut buffer,
            tag,
            completions,
        } = self;
        let result = file.read_at(&mut buffer, offset);
        // Before the completion is seen, so that whoever saw the last one may close everything.
        drop(file);
        completions.push(Completion {
            tag,
            buffer,
            result,
        });
    }
}

/// Reads in flight of one event loop, served by the device's threads.
#[derive(Debug)]
pub struct PreadChannel {
    pool: Arc<Pool>,
    completions: Arc<Completions>,
    depth: usize,
    in_flight: usize,
}

impl Channel for PreadChannel {
    type File = PreadFile;

    fn submit_read(
        &mut self,
        file: &PreadFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf> {
        if self.in_flight >= self.depth {
            return Err(buffer);
        }
        self.in_flight += 1;
        self.pool.requests.push(Request {
            file: file.clone(),
            offset,
            buffer,
            tag,
            completions: self.completions.clone(),
        });
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize {
        let count = self.completions.reap(completions);
        assert!(
            count <= self.in_flight,
            "more reads end than were submitted"
        );
        self.in_flight -= count;
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        if self.in_flight > 0 {
            self.completions.wait(timeout);
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}
