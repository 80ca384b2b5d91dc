//! Reads in flight: claims pages, submits their reads to a channel, and publishes pages that
//! arrive.
//!
//! Each event loop owns a fetcher, and so does the engine's read thread; a blocking call that needs
//! many pages at once borrows one and returns it empty. The completion of a read ends its claim,
//! whatever becomes of the operation that wanted the page.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::task::Waker;

use pando_device::{AnyChannel, Channel, ChannelOptions, Completion, Device, IoBuf, REAP_MAX};
use pando_format::PageId;
use pando_format::cast::usize_of;
use pando_pool::{LoadStart, LoadTicket, Restart};
use pando_stats::Ticker;
use pando_sync::time::Duration;
use pando_sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::pages::store::Store;
use crate::pages::tags::Tags;

thread_local! {
    /// The fetcher of the event loop that runs on this thread, while the loop commits. A thread
    /// does not destroy it when it ends, so that what it destroys may commit; [`OwnReads`] leaves
    /// nothing in it.
    static OWN: RefCell<ManuallyDrop<OwnFetcher>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

type OwnFetcher = Option<Arc<Mutex<Fetcher>>>;

/// While this exists, the thread takes the completions of its fetcher whenever it has to wait: a
/// page that is missing inside the gate may be one that only this thread can publish.
#[derive(Debug)]
pub(crate) struct OwnReads {
    /// Those of an outer call.
    before: OwnFetcher,
}

impl OwnReads {
    /// Makes `fetcher` this thread's own until the result is dropped.
    pub(crate) fn of(fetcher: &Arc<Mutex<Fetcher>>) -> Self {
        let before = OWN.replace(ManuallyDrop::new(Some(fetcher.clone())));
        Self {
            before: ManuallyDrop::into_inner(before),
        }
    }
}

impl Drop for OwnReads {
    fn drop(&mut self) {
        let own = OWN.replace(ManuallyDrop::new(self.before.take()));
        drop(ManuallyDrop::into_inner(own));
    }
}

/// Takes the completions of the thread's own reads. Returns false if the thread has no
/// [`OwnReads`].
pub(crate) fn reap_own(store: &Store) -> bool {
    OWN.with_borrow(|own| match &**own {
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

/// Most bytes that are read together: with this many, a device is about as fast as it gets, and
/// the first page of them does not wait long for the last one.
const JOINED_BYTES_MAX: usize = 64 << 10;

/// A channel, the claims of its reads, and its buffers.
///
/// Pages that lie one behind the other in the data file, and are asked for in this order, are read
/// together, by one request to the device (decision 114). Their tags are neighbours, and so are the
/// buffers of these. If that request fails, each of its pages is read by itself.
#[derive(Debug)]
pub(crate) struct Fetcher {
    channel: AnyChannel,
    /// Largest number of pages in flight; also the number of tags.
    depth: usize,
    tags: Tags,
    /// Claims of the pages in flight, by their tags.
    tickets: Vec<Option<LoadTicket>>,
    /// Number of bytes of these pages, by their tags.
    lens: Vec<usize>,
    /// By tag, in the order of memory; None while a read has the buffer.
    buffers: Vec<Option<IoBuf>>,
    /// Bytes of a buffer.
    buffer_bytes: usize,
    /// Number of pages that are read together, by the first tag.
    counts: Vec<usize>,
    /// The pages that will be read together, and that the channel does not know yet.
    gathered: Option<Gathered>,
    completions: Vec<Completion>,
}

/// Pages that lie one behind the other.
#[derive(Debug, Clone, Copy)]
struct Gathered {
    /// Tag of the first page; those of the others follow.
    first: usize,
    count: usize,
    /// Where they begin in the data file.
    offset: u64,
    bytes: usize,
}

impl Gathered {
    /// Returns the tag that a page at `offset` gets if it is read together with these.
    fn next_tag(&self, offset: u64, bytes: usize) -> Option<usize> {
        let is_next = self.offset + self.bytes as u64 == offset;
        (is_next && self.bytes + bytes <= JOINED_BYTES_MAX).then_some(self.first + self.count)
    }
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
        // It may have another back end than those before it.
        store.told_notes.tell(&store.device, true);
        let buffers = channel.buffers(depth, store.pool.page_size().bytes());
        Ok(Self {
            channel,
            depth,
            tags: Tags::new(depth),
            tickets: (0..depth).map(|_| None).collect(),
            lens: vec![0; depth],
            buffer_bytes: buffers.first().map_or(0, IoBuf::capacity),
            buffers: buffers.into_iter().map(Some).collect(),
            counts: vec![0; depth],
            gathered: None,
            completions: Vec::with_capacity(REAP_MAX),
        })
    }

    /// Number of pages in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.depth - self.tags.free()
    }

    /// Number of further pages whose reads can be started.
    pub(crate) fn room(&self) -> usize {
        self.tags.free()
    }

    /// Starts the read of a page, unless somebody reads it already. Never blocks. The device learns
    /// of it at the next [`Fetcher::flush`], [`Fetcher::reap`] or [`Fetcher::wait`] at the latest.
    pub(crate) fn start(&mut self, store: &Store, page: PageId) -> Result<Started> {
        if self.tags.free() == 0 {
            return Ok(Started::Crowded);
        }
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
        let tag = self.take_tag(store, offset, bytes);
        assert!(self.tickets[tag].is_none(), "the tag of a read in flight");
        (self.tickets[tag], self.lens[tag]) = (Some(ticket), bytes);
        Ok(Started::Reading(tag))
    }

    /// Takes a tag for a page, of which there is one: that behind those of the gathered pages if it
    /// lies behind these.
    fn take_tag(&mut self, store: &Store, offset: u64, bytes: usize) -> usize {
        if let Some(gathered) = &mut self.gathered
            && let Some(tag) = gathered.next_tag(offset, bytes)
            && self.tags.take(tag)
        {
            gathered.count += 1;
            gathered.bytes += bytes;
            return tag;
        }
        self.submit_gathered(store);
        let tag = self.tags.take_next().expect("a tag is free");
        self.gathered = Some(Gathered {
            first: tag,
            count: 1,
            offset,
            bytes,
        });
        tag
    }

    /// Hands the gathered pages to the channel.
    fn submit_gathered(&mut self, store: &Store) {
        let Some(gathered) = self.gathered.take() else {
            return;
        };
        if gathered.count > 1 {
            let together = gathered.count as u64;
            store.statistics.tick(Ticker::PageReadsJoined, together);
        }
        self.submit(store, &gathered);
    }

    fn submit(&mut self, store: &Store, gathered: &Gathered) {
        let Gathered {
            first,
            count,
            offset,
            bytes,
        } = *gathered;
        let mut own = self.buffers[first..first + count]
            .iter_mut()
            .map(|buffer| buffer.take().expect("each tag has a buffer"));
        let mut buffer = own.next().expect("a read of at least one page");
        for next in own {
            buffer.join(next).expect("buffers in the order of memory");
        }
        buffer.set_len(bytes);
        self.counts[first] = count;
        let submitted = self
            .channel
            .submit_read(&store.data, offset, buffer, first as u64);
        assert!(
            submitted.is_ok(),
            "a channel is as deep as it was asked for"
        );
    }

    /// Returns the tag of the read of `page`, if this fetcher reads it.
    pub(crate) fn tag_of(&self, page: PageId) -> Option<usize> {
        let of_page = |ticket: &Option<LoadTicket>| ticket.as_ref().map(LoadTicket::page);
        self.tickets
            .iter()
            .position(|ticket| of_page(ticket) == Some(page))
    }

    /// Takes completions: publishes their pages, wakes the waiters, and calls `each` with tag, page
    /// and result. Returns the number of pages. Never blocks.
    pub(crate) fn reap(
        &mut self,
        store: &Store,
        mut each: impl FnMut(usize, PageId, Result<()>),
    ) -> usize {
        self.submit_gathered(store);
        let mut completions = std::mem::take(&mut self.completions);
        self.channel.reap(&mut completions);
        let (mut count, mut is_again) = (0, false);
        for Completion {
            tag,
            mut buffer,
            result,
        } in completions.drain(..)
        {
            let first = usize_of(tag);
            let tags = first..first + self.counts[first];
            assert!(!tags.is_empty(), "each tag completes once");
            if let Err(error) = result {
                self.take_back(tags.clone(), buffer);
                match tags.len() {
                    1 => {
                        let ticket = self.end(first);
                        let page = ticket.page();
                        each(first, page, Err(store.read_failed(ticket, error)));
                        count += 1;
                    }
                    _ => {
                        self.read_apart(store, tags);
                        is_again = true;
                    }
                }
                continue;
            }
            let mut at = 0;
            for tag in tags.clone() {
                let bytes = at..at + self.lens[tag];
                at = bytes.end;
                let ticket = self.end(tag);
                let page = ticket.page();
                each(tag, page, store.publish(ticket, &buffer[bytes]));
                count += 1;
            }
            buffer.set_len(buffer.capacity());
            self.take_back(tags, buffer);
        }
        self.completions = completions;
        if is_again {
            self.channel.flush();
        }
        count
    }

    /// Ends the read of a page, and returns the claim.
    fn end(&mut self, tag: usize) -> LoadTicket {
        let ticket = self.tickets[tag].take();
        self.tags.give_back(tag);
        ticket.expect("each tag completes once")
    }

    /// Gives the buffers of `tags` back, which were joined.
    fn take_back(&mut self, tags: Range<usize>, mut buffer: IoBuf) {
        self.counts[tags.start] = 0;
        let last = tags.end - 1;
        for tag in tags.start..last {
            let rest = buffer.split_off(self.buffer_bytes);
            self.buffers[tag] = Some(std::mem::replace(&mut buffer, rest));
        }
        self.buffers[last] = Some(buffer);
    }

    /// Reads the pages of `tags` one by one, since the read of all has failed: perhaps that of
    /// most does not.
    #[cold]
    fn read_apart(&mut self, store: &Store, tags: Range<usize>) {
        for tag in tags {
            let ticket = self.tickets[tag].as_ref().expect("a page in flight");
            let place = store.place_of(ticket);
            let (offset, bytes) = place.expect("it was read before");
            let alone = Gathered {
                first: tag,
                count: 1,
                offset,
                bytes,
            };
            self.submit(store, &alone);
        }
    }

    /// Blocks until a read completes, [`Fetcher::waker`] is woken, or `timeout` is over. Returns at
    /// once if nothing is in flight.
    pub(crate) fn wait(&mut self, store: &Store, timeout: Option<Duration>) {
        self.submit_gathered(store);
        self.channel.wait(timeout);
    }

    /// Returns a waker that ends the current [`Fetcher::wait`], or else the next one.
    pub(crate) fn waker(&mut self) -> Waker {
        self.channel.waker()
    }

    /// Submits started reads to the device.
    pub(crate) fn flush(&mut self, store: &Store) {
        self.submit_gathered(store);
        self.channel.flush();
    }

    /// As [`Channel::completion_fd`].
    pub(crate) fn completion_fd(&self) -> Option<RawFd> {
        self.channel.completion_fd().map(|fd| fd.as_raw_fd())
    }

    /// Blocks until nothing is in flight; `each` as in [`Fetcher::reap`].
    pub(crate) fn drain(&mut self, store: &Store, mut each: impl FnMut(usize, PageId, Result<()>)) {
        while self.in_flight() > 0 {
            self.wait(store, None);
            self.reap(store, &mut each);
        }
    }
}
