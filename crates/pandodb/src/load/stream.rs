//! Pages that are written one after the other, without the pool: they are laid out in buffers,
//! which are written as long runs, a few at a time.
//!
//! Ids and blocks belong to the stream until somebody takes the page; dropping the stream frees
//! those that it has. A page can be taken when its write has ended: from then on any sync of the
//! data file makes it durable. A write that finds the disk full is repeated with the next page.

use std::collections::VecDeque;

use pando_device::{AnyChannel, Channel, ChannelOptions, Completion, Device, File, IoBuf};
use pando_format::cast::usize_of;
use pando_format::extent::EXTENT_BLOCKS_MAX;
use pando_format::{Extent, PageEncoder, PageId, StoredPage};

use crate::blobs::room::{ChunkRoom, ChunkTurn};
use crate::engine::{Engine, Shared};
use crate::error::{Error, Result};
use crate::pages::writeback::refused;
use crate::space::id_turns::IdWait;

/// Number of writes in flight, besides the buffer that is being filled.
const DEPTH: usize = 3;
/// A buffer takes one part in this many of the memory budget.
const BUFFERS_OF_BUDGET: u64 = 128;
const BUFFER_BYTES_MIN: u64 = 64 << 10;
const BUFFER_BYTES_MAX: u64 = 1 << 20;
/// Number of ids that are reserved at once.
const IDS: usize = 64;

/// A page, and where it is stored.
type PlacedPage = (PageId, StoredPage);

/// A buffer that is being written, or was.
#[derive(Debug)]
struct Flight {
    tag: u64,
    pages: Vec<PlacedPage>,
    ended: bool,
    /// The buffer, if the disk had no room for it: it must be written again.
    refused: Option<IoBuf>,
}

/// Pages that are written one after the other; see the module.
#[derive(Debug)]
pub(super) struct PageStream {
    engine: Shared,
    encoder: PageEncoder,
    /// Reserved ids that no page uses yet.
    ids: Vec<PageId>,
    /// Empty before the first page.
    buffer: IoBuf,
    /// Bytes of it that are filled.
    filled: usize,
    /// Its pages, which have no extents yet.
    pages: Vec<PlacedPage>,
    spare: Vec<IoBuf>,
    channel: Option<AnyChannel>,
    /// Oldest first.
    flights: VecDeque<Flight>,
    next_tag: u64,
    completions: Vec<Completion>,
    /// Pages that were written and not taken, in order.
    written: VecDeque<PlacedPage>,
    /// Error of a failed write: from then on no page can be taken.
    failed: Option<Error>,
    /// Counts the buffers against the memory budget.
    _turn: ChunkTurn,
}

impl PageStream {
    /// Returns a stream without pages. Its buffers are counted, but allocated only when needed.
    pub(super) fn new(engine: &Shared) -> Self {
        let bytes = buffer_bytes(engine) as u64;
        Self {
            engine: engine.clone(),
            encoder: PageEncoder::default(),
            ids: Vec::new(),
            buffer: IoBuf::default(),
            filled: 0,
            pages: Vec::new(),
            spare: Vec::new(),
            channel: None,
            flights: VecDeque::new(),
            next_tag: 0,
            completions: Vec::new(),
            written: VecDeque::new(),
            failed: None,
            _turn: ChunkRoom::count(&engine.incoming, bytes * (DEPTH as u64 + 1)),
        }
    }

    /// Repeats writes for which the disk had no room. Blocks.
    ///
    /// # Errors
    /// The error of a failed write. [`Error::Full`] if there still is no room.
    fn check(&mut self) -> Result<()> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let is_refused = |flight: &Flight| flight.refused.is_some();
        while let Some(at) = self.flights.iter().position(is_refused) {
            let flight = &mut self.flights[at];
            let (tag, refused) = (flight.tag, flight.refused.take());
            let buffer = refused.expect("looked for");
            let written = self.write_pieces(at, &buffer);
            self.end(tag, buffer, written.clone());
            written?;
        }
        Ok(())
    }

    /// Adds one page: `lay_out` gets a page of zeros and its id. Blocks when too many writes are in
    /// flight.
    ///
    /// # Errors
    /// [`Error::Full`] if there are no blocks or ids, or the disk has no room; the page was not
    /// laid out then, and a later call may succeed. The error of a failed write, which is final.
    pub(super) fn push(&mut self, lay_out: impl FnOnce(&mut [[u8; 8]], PageId)) -> Result<PageId> {
        self.check()?;
        let page_bytes = self.engine.store.pool.page_size().bytes();
        if self.buffer.is_empty() {
            self.buffer = self
                .spare
                .pop()
                .unwrap_or_else(|| IoBuf::new(buffer_bytes(&self.engine)));
        }
        if self.filled + page_bytes > self.buffer.len() {
            self.send()?;
            return self.push(lay_out);
        }
        let page = self.reserve_id()?;
        let bytes = &mut self.buffer[self.filled..self.filled + page_bytes];
        bytes.fill(0);
        lay_out(bytes.as_chunks_mut().0, page);
        // If this epoch has ended by then, the extent only waits for one more checkpoint when it is
        // freed.
        let pool = &self.engine.store.pool;
        let epoch = pool.epochs().current();
        let stored = match pool.seal_outside(bytes, page, epoch, &mut self.encoder) {
            Ok(stored) => stored,
            Err(bad) => {
                self.ids.push(page);
                return Err(self.engine.poisoned_by(&refused(&bad)));
            }
        };
        self.filled +=
            stored.extent.blocks as usize * usize_of(self.engine.store.space.block_bytes());
        assert!(
            self.filled <= self.buffer.len(),
            "a page ends within its buffer"
        );
        self.pages.push((page, stored));
        Ok(page)
    }

    /// Returns an unused id. The caller returns it to the pool, or has it adopted.
    pub(super) fn reserve_id(&mut self) -> Result<PageId> {
        if let Some(page) = self.ids.pop() {
            return Ok(page);
        }
        let engine = &self.engine;
        // Near the limit of the page table, reserve only what is needed.
        let mut wait = IdWait::default();
        let many = IDS as u64 <= engine.store.ids_at_most(false);
        let many = many.then(|| engine.reserve_page_ids((0, IDS as u64), false, &mut wait));
        let (reservation, count) = match many {
            Some(Ok(reservation)) => (reservation, IDS),
            Some(Err(_)) | None => {
                let one = engine.block(|_| engine.reserve_page_ids((0, 1), false, &mut wait))?;
                (one, 1)
            }
        };
        engine.store.pool.reserve_ids(count, &mut self.ids);
        self.ids.iter().for_each(|_| reservation.taken());
        assert!(self.ids.len() <= count, "more ids than were reserved");
        // So that the lowest is taken first.
        self.ids.reverse();
        self.ids.pop().ok_or_else(|| engine.page_ids_error(1))
    }

    /// Allocates extents for the buffer's pages and starts its write.
    fn send(&mut self) -> Result<()> {
        if self.filled == 0 {
            return Ok(());
        }
        self.engine.place(&mut self.pages)?;
        let extents = self.pages.iter().map(|(_, stored)| stored.extent.blocks);
        assert_eq!(
            extents.map(u64::from).sum::<u64>() * self.engine.store.space.block_bytes(),
            self.filled as u64,
            "the buffer has the bytes of its pages"
        );
        // From here on the pages belong to a flight: their extents are known.
        let pages = std::mem::take(&mut self.pages);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.set_len(std::mem::take(&mut self.filled));
        let is_one_run = pages.is_sorted_by(|(_, one), (_, next)| {
            one.extent.block + one.extent.blocks == next.extent.block
        });
        let tag = self.next_tag;
        self.next_tag += 1;
        self.flights.push_back(Flight {
            tag,
            pages,
            ended: false,
            refused: None,
        });
        if is_one_run {
            self.submit(buffer, tag);
        } else {
            let written = self.write_pieces(self.flights.len() - 1, &buffer);
            self.end(tag, buffer, written);
        }
        self.check()
    }

    fn submit(&mut self, mut buffer: IoBuf, tag: u64) {
        let engine = self.engine.clone();
        let flight = self.flights.back().expect("it was pushed before");
        let offset = u64::from(flight.pages[0].1.extent.block) * engine.store.space.block_bytes();
        if self.channel.is_none() {
            self.channel = engine.store.device.channel(ChannelOptions::new(DEPTH)).ok();
        }
        if self.channel.is_none() {
            // Without a channel, runs are written one after the other.
            let written = self.write_pieces(self.flights.len() - 1, &buffer);
            return self.end(tag, buffer, written);
        }
        loop {
            let channel = self.channel.as_mut().expect("made above");
            match channel.submit_write(&engine.store.data, offset, buffer, tag) {
                Ok(()) => break,
                Err(refused) => buffer = refused,
            }
            channel.wait(None);
            self.reap();
        }
        self.channel.as_mut().expect("made above").flush();
        self.reap();
    }

    /// Writes the pages of flight `at`, which need not be adjacent. Blocks.
    fn write_pieces(&self, at: usize, buffer: &[u8]) -> Result<()> {
        let block_bytes = self.engine.store.space.block_bytes();
        let mut rest = buffer;
        for (_, stored) in &self.flights[at].pages {
            let bytes = stored.extent.blocks as usize * usize_of(block_bytes);
            let (piece, behind) = rest.split_at(bytes);
            let offset = u64::from(stored.extent.block) * block_bytes;
            let written = self.engine.store.data.write_at(piece, offset);
            written.map_err(Error::io("writing loaded pages"))?;
            rest = behind;
        }
        assert!(rest.is_empty(), "bytes of no page");
        Ok(())
    }

    fn reuse(&mut self, mut buffer: IoBuf) {
        buffer.set_len(buffer_bytes(&self.engine));
        self.spare.push(buffer);
    }

    /// Notes that the write of a flight, whose data are in `buffer`, has ended.
    fn end(&mut self, tag: u64, buffer: IoBuf, result: Result<()>) {
        let mut flights = self.flights.iter_mut();
        let flight = flights.find(|flight| flight.tag == tag);
        let flight = flight.expect("each write ends once");
        assert!(!flight.ended, "each write ends once");
        assert!(
            flight.refused.is_none(),
            "what was refused is not in flight"
        );
        if matches!(result, Err(Error::Full { .. })) {
            flight.refused = Some(buffer);
            return;
        }
        flight.ended = true;
        self.failed = self.failed.take().or_else(|| result.err());
        self.reuse(buffer);
    }

    /// Takes completions. Never blocks.
    fn reap(&mut self) {
        let Some(channel) = &mut self.channel else {
            return;
        };
        let mut completions = std::mem::take(&mut self.completions);
        channel.reap(&mut completions);
        for completion in completions.drain(..) {
            let written = completion.result;
            let written = written.map_err(Error::io("writing loaded pages"));
            self.end(completion.tag, completion.buffer, written);
        }
        self.completions = completions;
    }

    /// Writes what is left, and waits for all writes. Blocks.
    ///
    /// # Errors
    /// As [`PageStream::push`].
    pub(super) fn drain(&mut self) -> Result<()> {
        self.check()?;
        self.send()?;
        self.wait_for_all();
        self.check()
    }

    /// Blocks until nothing is in flight: each write has ended, or was refused.
    fn wait_for_all(&mut self) {
        let flies = |flight: &Flight| !flight.ended && flight.refused.is_none();
        while self.flights.iter().any(flies) {
            if let Some(channel) = &mut self.channel {
                channel.wait(None);
            }
            self.reap();
        }
    }

    /// Returns the pages that were written and not taken, in order.
    ///
    /// # Errors
    /// As [`PageStream::push`].
    pub(super) fn written(&mut self) -> Result<&mut VecDeque<PlacedPage>> {
        self.check()?;
        while self.flights.front().is_some_and(|flight| flight.ended) {
            let flight = self.flights.pop_front();
            self.written
                .extend(flight.into_iter().flat_map(|of| of.pages));
        }
        Ok(&mut self.written)
    }
}

impl Drop for PageStream {
    fn drop(&mut self) {
        if self.engine.store.check_process().is_err() {
            // In a forked child: the writes, and all that they concern, belong to the parent.
            return;
        }
        // Blocks must not be reused before their write has ended.
        self.wait_for_all();
        let pool = &self.engine.store.pool;
        for page in self.ids.drain(..) {
            pool.return_id(page);
        }
        for (page, _) in self.pages.drain(..) {
            pool.return_id(page);
        }
        let flights = self.flights.drain(..).flat_map(|flight| flight.pages);
        let placed: Vec<PlacedPage> = self.written.drain(..).chain(flights).collect();
        for (page, _) in &placed {
            pool.return_id(*page);
        }
        let extents = placed.iter().map(|(_, stored)| stored.extent);
        self.engine.store.space.free_all(extents);
    }
}

/// Bytes of a buffer: at most the longest run of blocks.
fn buffer_bytes(engine: &Engine) -> usize {
    let share = engine.options.max_memory / BUFFERS_OF_BUDGET;
    let run = u64::from(EXTENT_BLOCKS_MAX) * engine.store.space.block_bytes();
    let bytes = share.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX).min(run);
    let page_bytes = engine.store.pool.page_size().bytes();
    (1_usize << bytes.ilog2()).max(page_bytes)
}

impl Engine {
    /// Allocates extents for pages: one run, or several if no run is long enough and the file
    /// cannot grow. Blocks until there is room.
    fn place(&self, pages: &mut [PlacedPage]) -> Result<()> {
        let blocks = pages.iter().map(|(_, stored)| stored.extent.blocks).sum();
        let mut run = match self.block(|_| self.try_run_of_blocks(blocks)) {
            Err(Error::Full { .. }) if pages.len() > 1 => {
                let (front, back) = pages.split_at_mut(pages.len() / 2);
                self.place(front)?;
                return self.place(back).inspect_err(|_| {
                    let taken = front.iter().map(|(_, stored)| stored.extent);
                    self.store.space.free_unused(taken);
                });
            }
            Err(Error::Full { .. }) => self.run_of_blocks(blocks)?,
            other => other?,
        };
        let first = run.block;
        for (_, stored) in pages.iter_mut() {
            stored.extent = Extent {
                block: run.block,
                ..stored.extent
            };
            run.block += stored.extent.blocks;
        }
        assert_eq!(run.block, first + blocks, "the pages fill their run");
        let extents: Vec<Extent> = pages.iter().map(|(_, stored)| stored.extent).collect();
        self.store.space.count_allocated(&extents);
        Ok(())
    }
}
