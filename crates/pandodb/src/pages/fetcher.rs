//! Reads in flight: claims pages, submits their reads to a channel, and publishes pages that
//! arrive.
//!
//! Each event loop owns a fetcher, and so does the engine's read thread; a blocking call that needs
//! many pages at once borrows one and returns it empty. The completion of a read ends its claim,
//! whatever becomes of the operation that wanted the page.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, RawFd};
use std::task::Waker;

use pando_device::{AnyChannel, Channel, ChannelOptions, Completion, Device, IoBuf, REAP_MAX};
use pando_format::PageId;
use pando_format::cast::usize_of;
use pando_pool::{LoadStart, LoadTicket, Restart};
use pando_sync::time::Duration;
use pando_sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::pages::store::Store;

thread_local! {
    /// The fetcher of the event loop that runs on this thread, while the loop commits.
    static OWN: RefCell<Option<Arc<Mutex<Fetcher>>>> = const { RefCell::new(None) };
}

/// While this exists, the thread takes the completions of its fetcher whenever it has to wait: a
/// page that is missing inside the gate may be one that only this thread can publish.
#[derive(Debug)]
pub(crate) struct OwnReads {
    /// Those of an outer call.
    before: Option<Arc<Mutex<Fetcher>>>,
}

impl OwnReads {
    /// Makes `fetcher` this thread's own until the result is dropped.
    pub(crate) fn of(fetcher: &Arc<Mutex<Fetcher>>) -> Self {
        let before = OWN.replace(Some(fetcher.clone()));
        Self { before }
    }
}

impl Drop for OwnReads {
    fn drop(&mut self) {
        OWN.set(self.before.take());
    }
}

/// Takes the completions of the thread's own reads. Returns false if the thread has no
/// [`OwnReads`].
pub(crate) fn reap_own(store: &Store) -> bool {
    OWN.with_borrow(|own| match own {
        Some(fetcher) => {
            if let Some(mut fetcher) = fetcher.try_lock() {
                // Errors are ignored: a later request for the page meets the error again.
                fetcher.reap(store, |_, _, _| ());
            }
            true
        }
        None => false,
    })
}

/// A channel, the claims of its reads, and its buffers.
#[derive(Debug)]
pub(crate) struct Fetcher {
    channel: AnyChannel,
    /// Largest number of reads in flight; also the number of tags.
    depth: usize,
    /// Claims of the reads in flight, by their tags.
    tickets: Vec<Option<LoadTicket>>,
    free_tags: Vec<usize>,
    /// One for each free tag.
    buffers: Vec<IoBuf>,
    completions: Vec<Completion>,
}

/// Result of a request to read a page.
#[derive(Debug)]
pub(crate) enum Started {
    /// Its read was submitted, with this tag.
    Reading(usize),
    /// It is being read already, perhaps by another thread: see [`Fetcher::tag_of`].
    Loading,
    /// It is in memory, or no page has this id.
    Done,
    /// All tags are in use.
    Crowded,
    /// The pool refused the claim, for example because no frame is free.
    Refused(Restart),
}

impl Fetcher {
    /// Opens a channel on the store's device, with one buffer per tag.
    pub(crate) fn new(store: &Store, options: ChannelOptions) -> Result<Self> {
        let depth = options.depth;
        let mut channel = store
            .device
            .channel(options)
            .map_err(Error::io("making an I/O channel"))?;
        let buffers = channel.buffers(depth, store.pool.page_size().bytes());
        Ok(Self {
            channel,
            depth,
            tickets: (0..depth).map(|_| None).collect(),
            free_tags: (0..depth).rev().collect(),
            buffers,
            completions: Vec::with_capacity(REAP_MAX),
        })
    }

    /// Number of reads in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.depth - self.free_tags.len()
    }

    /// Number of further reads that can be started.
    pub(crate) fn room(&self) -> usize {
        self.free_tags.len()
    }

    /// Starts the read of a page, unless somebody reads it already. Never blocks.
    pub(crate) fn start(&mut self, store: &Store, page: PageId) -> Result<Started> {
        let Some(tag) = self.free_tags.last().copied() else {
            return Ok(Started::Crowded);
        };
        assert!(self.tickets[tag].is_none(), "the tag of a read in flight");
        assert_eq!(
            self.buffers.len(),
            self.free_tags.len(),
            "a buffer for each read that may begin"
        );
        let ticket = match store.pool.begin_load(page) {
            Ok(LoadStart::Claimed(ticket)) => ticket,
            Ok(LoadStart::Loading) => return Ok(Started::Loading),
            Ok(LoadStart::Resident | LoadStart::Free) => return Ok(Started::Done),
            Err(restart) => return Ok(Started::Refused(restart)),
        };
        let (offset, bytes) = match store.place_of(&ticket) {
            Ok(place) => place,
            Err(error) => return Err(store.give_up(ticket, error)),
        };
        let mut buffer = self.buffers.pop().expect("there is one for each tag");
        buffer.set_len(bytes);
        match self
            .channel
            .submit_read(&store.data, offset, buffer, tag as u64)
        {
            Ok(()) => {
                self.free_tags.pop();
                self.tickets[tag] = Some(ticket);
                Ok(Started::Reading(tag))
            }
            Err(buffer) => {
                self.buffers.push(buffer);
                store.pool.fail_load(ticket);
                Ok(Started::Crowded)
            }
        }
    }

    /// Returns the tag of the read of `page`, if this fetcher reads it.
    pub(crate) fn tag_of(&self, page: PageId) -> Option<usize> {
        let of_page = |ticket: &Option<LoadTicket>| ticket.as_ref().map(LoadTicket::page);
        self.tickets
            .iter()
            .position(|ticket| of_page(ticket) == Some(page))
    }

    /// Takes completions: publishes their pages, wakes the waiters, and calls `each` with tag, page
    /// and result. Returns the number of completions. Never blocks.
    pub(crate) fn reap(
        &mut self,
        store: &Store,
        mut each: impl FnMut(usize, PageId, Result<()>),
    ) -> usize {
        let mut completions = std::mem::take(&mut self.completions);
        let count = self.channel.reap(&mut completions);
        for completion in completions.drain(..) {
            let tag = usize_of(completion.tag);
            let ticket = self.tickets[tag].take().expect("each tag completes once");
            self.free_tags.push(tag);
            let page = ticket.page();
            let result = match completion.result {
                Ok(()) => store.publish(ticket, &completion.buffer),
                Err(error) => Err(store.read_failed(ticket, error)),
            };
            self.buffers.push(completion.buffer);
            each(tag, page, result);
        }
        self.completions = completions;
        assert!(self.free_tags.len() <= self.depth, "a tag came back twice");
        count
    }

    /// Blocks until a read completes, [`Fetcher::waker`] is woken, or `timeout` is over. Returns at
    /// once if nothing is in flight.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) {
        self.channel.wait(timeout);
    }

    /// Returns a waker that ends the current [`Fetcher::wait`], or else the next one.
    pub(crate) fn waker(&mut self) -> Waker {
        self.channel.waker()
    }

    /// Submits started reads to the device.
    pub(crate) fn flush(&mut self) {
        self.channel.flush();
    }

    /// As [`Channel::completion_fd`].
    pub(crate) fn completion_fd(&self) -> Option<RawFd> {
        self.channel.completion_fd().map(|fd| fd.as_raw_fd())
    }

    /// Blocks until nothing is in flight; `each` as in [`Fetcher::reap`].
    pub(crate) fn drain(&mut self, store: &Store, mut each: impl FnMut(usize, PageId, Result<()>)) {
        while self.in_flight() > 0 {
            self.wait(None);
            self.reap(store, &mut each);
        }
    }
}
