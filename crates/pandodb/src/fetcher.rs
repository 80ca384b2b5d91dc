//! Reads in flight: claims pages, submits their reads to a channel, publishes what arrives.
//!
//! An event loop owns one; a blocking call that needs many pages at once borrows one and gives it
//! back empty. Each read's claim is ended by its completion, whatever becomes of the operation.

use std::cell::RefCell;
use std::task::Waker;

use pando_device::{AnyChannel, Channel, ChannelOptions, Completion, Device, IoBuf};
use pando_format::PageId;
use pando_pool::{LoadStart, LoadTicket, Restart};
use pando_sync::time::Duration;
use pando_sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::store::Store;

thread_local! {
    /// The reads in flight of the event loop that runs on this thread, while it commits.
    static OWN: RefCell<Option<Arc<Mutex<Fetcher>>>> = const { RefCell::new(None) };
}

/// While it lives, the thread takes the completions of this fetcher where it has to wait: inside
/// the gate a page may be missing that only this thread can publish.
#[derive(Debug)]
pub(crate) struct OwnReads(());

impl OwnReads {
    pub(crate) fn of(fetcher: &Arc<Mutex<Fetcher>>) -> Self {
        OWN.set(Some(fetcher.clone()));
        Self(())
    }
}

impl Drop for OwnReads {
    fn drop(&mut self) {
        OWN.set(None);
    }
}

/// Takes the completions of the thread's own reads. False if it has none to look after.
pub(crate) fn reap_own(store: &Store) -> bool {
    OWN.with_borrow(|own| match own {
        Some(fetcher) => {
            if let Some(mut fetcher) = fetcher.try_lock() {
                // An error is met again by whoever asks for the page.
                fetcher.reap(store, |_, _| ());
            }
            true
        }
        None => false,
    })
}

const DRAIN_PAUSE: Duration = Duration::from_millis(10);

/// A channel, the claims of its reads, and its buffers.
#[derive(Debug)]
pub(crate) struct Fetcher {
    channel: AnyChannel,
    depth: usize,
    /// Claims of the reads in flight, by tag.
    tickets: Vec<Option<LoadTicket>>,
    free_tags: Vec<usize>,
    buffers: Vec<IoBuf>,
    completions: Vec<Completion>,
}

/// What became of a wish for a page.
#[derive(Debug)]
pub(crate) enum Started {
    /// It is being read, by this fetcher or by another.
    Reading,
    /// It is there, or no page has its id any more.
    Done,
    /// All tags are in use.
    Crowded,
    /// No frame is free.
    Refused(Restart),
}

impl Fetcher {
    /// At most `depth` reads in flight. `notify` is woken when there are completions.
    pub(crate) fn new(store: &Store, depth: usize, notify: Waker) -> Result<Self> {
        let channel = store
            .device
            .channel(ChannelOptions::new(depth).notify(notify))
            .map_err(Error::io("making an I/O channel"))?;
        Ok(Self {
            channel,
            depth,
            tickets: (0..depth).map(|_| None).collect(),
            free_tags: (0..depth).rev().collect(),
            buffers: Vec::new(),
            completions: Vec::new(),
        })
    }

    /// Reads in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.depth - self.free_tags.len()
    }

    /// Reads that may still be started.
    pub(crate) fn room(&self) -> usize {
        self.free_tags.len()
    }

    /// Starts the read of a page, if nobody else has. Never blocks.
    pub(crate) fn start(&mut self, store: &Store, page: PageId) -> Result<Started> {
        let Some(tag) = self.free_tags.last().copied() else {
            return Ok(Started::Crowded);
        };
        let ticket = match store.pool.begin_load(page) {
            Ok(LoadStart::Claimed(ticket)) => ticket,
            Ok(LoadStart::Loading) => return Ok(Started::Reading),
            Ok(LoadStart::Resident | LoadStart::Free) => return Ok(Started::Done),
            Err(restart) => return Ok(Started::Refused(restart)),
        };
        let offset = match store.place_of(&ticket) {
            Ok((offset, _)) => offset,
            Err(error) => {
                store.pool.fail_load(ticket);
                return Err(error);
            }
        };
        let bytes = store.pool.page_size().bytes();
        let buffer = self.buffers.pop().unwrap_or_else(|| IoBuf::new(bytes));
        match self
            .channel
            .submit_read(&store.data, offset, buffer, tag as u64)
        {
            Ok(()) => {
                self.free_tags.pop();
                self.tickets[tag] = Some(ticket);
                Ok(Started::Reading)
            }
            Err(buffer) => {
                self.buffers.push(buffer);
                store.pool.fail_load(ticket);
                Ok(Started::Crowded)
            }
        }
    }

    /// Takes completions: publishes pages and wakes those that wait for them; `each` learns of
    /// every one. Returns how many. Never blocks.
    pub(crate) fn reap(
        &mut self,
        store: &Store,
        mut each: impl FnMut(PageId, Result<()>),
    ) -> usize {
        let mut completions = std::mem::take(&mut self.completions);
        let count = self.channel.reap(&mut completions);
        for completion in completions.drain(..) {
            let tag = completion.tag as usize;
            let ticket = self.tickets[tag].take().expect("each tag completes once");
            self.free_tags.push(tag);
            let page = ticket.page();
            let result = match completion.result {
                Ok(()) => store.publish(ticket, &completion.buffer),
                Err(error) => Err(store.read_failed(ticket, error)),
            };
            self.buffers.push(completion.buffer);
            each(page, result);
        }
        self.completions = completions;
        count
    }

    /// Blocks until nothing is in flight.
    pub(crate) fn drain(&mut self, store: &Store, mut each: impl FnMut(PageId, Result<()>)) {
        while self.in_flight() > 0 {
            self.channel.wait(Some(DRAIN_PAUSE));
            self.reap(store, &mut each);
        }
    }
}

impl crate::engine::Engine {
    /// Reads pages that an operation is going to need, at the same time. Those that find no free
    /// frame are left out. Blocks.
    ///
    /// # Errors
    /// The first read that failed.
    pub(crate) fn fetch_many(&self, pages: &[PageId]) -> Result<()> {
        let spare = self.fetchers.lock().pop();
        let mut fetcher = match spare {
            Some(fetcher) => fetcher,
            None => Fetcher::new(self, self.options.queue_depth, pando_sync::thread_waker())?,
        };
        let mut failed = Ok(());
        for page in pages {
            if fetcher.room() == 0 {
                break;
            }
            match fetcher.start(self, *page) {
                Ok(Started::Refused(_)) => break,
                Ok(_) => {}
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            }
        }
        fetcher.drain(self, |_, result| {
            if failed.is_ok() {
                failed = result;
            }
        });
        self.fetchers.lock().push(fetcher);
        failed
    }
}
