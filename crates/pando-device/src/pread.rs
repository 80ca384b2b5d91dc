//! The threads that read and write, and the channels that feed them.
//!
//! All channels of a device share one queue with one lock. A request owns its buffer, its file and
//! its channel's completions, so a channel may be dropped at any time. The threads end when the
//! last handle of the device (a clone, or a channel) was dropped and the queue is empty.

use std::collections::VecDeque;
use std::task::{Wake, Waker};

use pando_sync::thread::{self, JoinHandle};
use pando_sync::time::Duration;
use pando_sync::{Arc, Condvar, Mutex, Rank, WakerArc};

use crate::buffer::IoBuf;
use crate::completions::Completions;
use crate::device::{Channel, ChannelOptions, Completion, File, REAP_MAX};
use crate::directory::DirectoryFile;
use crate::error::{Error, Result};
use crate::fork::ForkGuard;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

/// A read or write that waits for a thread.
#[derive(Debug)]
struct ThreadRequest {
    direction: Direction,
    file: DirectoryFile,
    offset: u64,
    buffer: IoBuf,
    tag: u64,
    completions: WakerArc<Completions>,
}

#[derive(Debug, Default)]
struct ThreadQueue {
    requests: VecDeque<ThreadRequest>,
    /// Number of threads that wait for a request.
    idle: usize,
    stopping: bool,
    /// Sum of the depths of all channels, for which the queue has allocated room.
    depths: usize,
}

#[derive(Debug, Default)]
struct PoolQueue {
    queue: Mutex<ThreadQueue>,
    /// Notified when `queue` gets a request, or the pool stops.
    filled: Condvar,
}

/// The threads of one device. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Pool {
    requests: Arc<PoolQueue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    threads_max: usize,
    fork: Arc<ForkGuard>,
}

impl Pool {
    /// Makes a pool whose `threads_max` (at least 1) threads start with the first channel.
    pub(crate) fn new(threads_max: usize, fork: Arc<ForkGuard>) -> Self {
        Self {
            requests: Arc::default(),
            threads: Mutex::new(Rank::Leaf, Vec::new()),
            threads_max: threads_max.max(1),
            fork,
        }
    }

    fn start(&self) -> Result<()> {
        let mut threads = self.threads.lock();
        while threads.len() < self.threads_max {
            let requests = self.requests.clone();
            let thread = thread::Builder::new()
                .name(format!("pando-io-{}", threads.len()))
                .spawn(move || requests.serve())
                .map_err(|error| Error::from_io("start", "I/O threads", error))?;
            threads.push(thread);
        }
        Ok(())
    }

    /// Makes a channel, which keeps the pool alive.
    pub(crate) fn channel(this: &Arc<Self>, options: ChannelOptions) -> Result<PreadChannel> {
        let depth = options.depth;
        this.start()?;
        {
            let mut queue = this.requests.queue.lock();
            queue.depths += depth;
            let missing = queue.depths - queue.requests.len().min(queue.depths);
            queue.requests.reserve(missing);
        }
        let completions = WakerArc::new(Completions::new(depth, options.notify));
        let waker = ChannelWaker {
            completions: completions.clone(),
            fork: this.fork.clone(),
        };
        Ok(PreadChannel {
            pool: this.clone(),
            completions,
            waker: WakerArc::new(waker).into(),
            depth,
            in_flight: 0,
            orphans: Vec::new(),
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.fork.is_child() {
            // The threads belong to the parent, so they cannot be detached here.
            std::mem::take(self.threads.get_mut()).leak();
            return;
        }
        self.requests.queue.lock().stopping = true;
        self.requests.filled.notify_all();
        let this = thread::current().id();
        for thread in self.threads.lock().drain(..) {
            // A waker that runs on a thread of the pool may drop the last handle.
            if thread.thread().id() != this {
                thread
                    .join()
                    .expect("reading and writing return errors and do not panic");
            }
        }
    }
}

impl Drop for PreadChannel {
    fn drop(&mut self) {
        if !self.pool.fork.is_child() {
            self.pool.requests.queue.lock().depths -= self.depth;
        }
    }
}

impl PoolQueue {
    fn push(&self, request: ThreadRequest) {
        let mut queue = self.queue.lock();
        queue.requests.push_back(request);
        let idle = queue.idle > 0;
        drop(queue);
        if idle {
            self.filled.notify_one();
        }
    }

    /// Runs a thread of the pool until the pool is closed.
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

impl ThreadRequest {
    fn perform(self) {
        let Self {
            direction,
            file,
            offset,
            mut buffer,
            tag,
            completions,
        } = self;
        let result = match direction {
            Direction::Read => file.read_at(&mut buffer, offset),
            Direction::Write => file.write_at(&buffer, offset),
        };
        // Before the completion is visible, so that a caller that has seen the last one may close
        // everything.
        drop(file);
        completions.push(Completion {
            tag,
            buffer,
            result,
        });
    }
}

/// Requests in flight of one event loop, served by the device's threads.
#[derive(Debug)]
pub struct PreadChannel {
    pool: Arc<Pool>,
    completions: WakerArc<Completions>,
    /// Made once, since each waiting read asks for it.
    waker: Waker,
    depth: usize,
    in_flight: usize,
    /// Requests submitted in a forked child, which has none of the threads.
    orphans: Vec<Completion>,
}

impl PreadChannel {
    fn submit(
        &mut self,
        direction: Direction,
        file: &DirectoryFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf> {
        if self.pool.fork.is_child() {
            // Those before the fork are the parent's, and the locks are in any state.
            self.orphans.push(Completion {
                tag,
                buffer,
                result: Err(Error::Forked),
            });
            return Ok(());
        }
        if self.in_flight >= self.depth {
            return Err(buffer);
        }
        self.in_flight += 1;
        self.pool.requests.push(ThreadRequest {
            direction,
            file: file.clone(),
            offset,
            buffer,
            tag,
            completions: self.completions.clone(),
        });
        Ok(())
    }
}

impl Channel for PreadChannel {
    type File = DirectoryFile;

    fn submit_read(
        &mut self,
        file: &DirectoryFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf> {
        self.submit(Direction::Read, file, offset, buffer, tag)
    }

    fn submit_write(
        &mut self,
        file: &DirectoryFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf> {
        self.submit(Direction::Write, file, offset, buffer, tag)
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize {
        if self.pool.fork.is_child() {
            let count = self.orphans.len().min(REAP_MAX);
            completions.extend(self.orphans.drain(..count));
            return count;
        }
        let count = self.completions.reap(completions);
        assert!(
            count <= self.in_flight,
            "more requests end than were submitted"
        );
        self.in_flight -= count;
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        if self.in_flight > 0 && !self.pool.fork.is_child() {
            self.completions.wait(timeout);
        }
    }

    fn in_flight(&self) -> usize {
        if self.pool.fork.is_child() {
            return self.orphans.len();
        }
        self.in_flight
    }

    fn waker(&mut self) -> Waker {
        self.waker.clone()
    }
}

/// Ends a wait of the channel. Does nothing in a forked child, because a thread of the parent may
/// have held the lock of the completions.
#[derive(Debug)]
struct ChannelWaker {
    completions: WakerArc<Completions>,
    fork: Arc<ForkGuard>,
}

impl Wake for ChannelWaker {
    fn wake(self: WakerArc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &WakerArc<Self>) {
        if !self.fork.is_child() {
            self.completions.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::in_child;

    #[test]
    fn a_waker_in_a_child_does_not_wait_for_a_thread_of_the_parent() {
        let pool = Arc::new(Pool::new(1, Arc::new(ForkGuard::new())));
        let mut channel = Pool::channel(&pool, ChannelOptions::new(1)).unwrap();
        let waker = channel.waker();
        channel.completions.while_locked(|| {
            assert!(in_child(|| {
                waker.wake_by_ref();
                true
            }));
        });
        waker.wake();
        channel.completions.wait(Some(Duration::from_secs(30)));
    }
}
