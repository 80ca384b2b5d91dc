//! The phases of a compaction, in order; only one runs at a time.

use std::ops::ControlFlow;

use pando_stats::Ticker;
use pando_sync::thread;
use pando_sync::time::{self, Duration};

use crate::api::db::Db;
use crate::compact::progress::{CompactPhase, CompactProgress, CompactReport};
use crate::engine::Engine;
use crate::error::{Error, Result};

/// Pause between two checks whether garbage has been freed.
const GARBAGE_PAUSE: Duration = Duration::from_millis(1);
/// Number of steps between two calls of the progress function.
const STEPS_PER_CALL: u64 = 64;
/// The progress at which each phase begins.
const PACK_FROM: f64 = 0.05;
const REWRITE_FROM: f64 = 0.2;
pub(super) const MOVE_FROM: f64 = 0.5;
pub(super) const CUT_FROM: f64 = 0.95;

/// Which pages a compaction writes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pages {
    /// Those that are packed or moved.
    Packed,
    /// All.
    All,
}

/// A running compaction.
pub(crate) struct Compaction<'a, P> {
    pub(super) engine: &'a Engine,
    pages: Pages,
    /// The store closes, and waits for it.
    pub(super) at_close: bool,
    progress: P,
    /// The last phase reported.
    phase: CompactPhase,
    /// The highest progress reported so far.
    share: f64,
    /// Steps so far.
    steps: u64,
}

/// Why a compaction ends early.
#[derive(Debug)]
pub(super) enum End {
    Error(Error),
    /// The progress function told it to stop.
    Stopped,
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Result of a part of a compaction.
pub(super) type Part<T> = std::result::Result<T, End>;

impl Db {
    /// Shrinks the files to what the store holds, while others read and write: packs underfull
    /// leaves, moves pages and chunks from the end of the data file to its front, cuts the file,
    /// and frees space that the log does not use. Blocks until that is done; only one call runs at
    /// a time. Calls `progress` now and then on this thread; if it breaks, the work done so far
    /// stays. It may call the store, but not close it.
    ///
    /// The store may be closed or killed meanwhile. The call does not wait for concurrent writes:
    /// the file becomes as small as it can be at that time, and grows again when necessary. Nor
    /// does it wait for room on a full disk.
    /// # Errors
    /// [`Error::Busy`] while another call runs, [`Error::Full`], [`Error::Closed`],
    /// [`Error::Poisoned`], an error for damage.
    pub fn compact(
        &self,
        progress: impl FnMut(CompactProgress) -> ControlFlow<()>,
    ) -> Result<CompactReport> {
        self.compact_pages(Pages::Packed, progress)
    }

    /// As [`Db::compact`], but writes every page again, so that all of them have the compression
    /// that this opening has chosen ([`Builder::compression`](crate::Builder::compression)). Large
    /// values are not compressed, and stay as they are. When it has ended early, only some pages
    /// have the new compression; another call writes all of them again.
    /// # Errors
    /// As [`Db::compact`].
    pub fn rewrite(
        &self,
        progress: impl FnMut(CompactProgress) -> ControlFlow<()>,
    ) -> Result<CompactReport> {
        self.compact_pages(Pages::All, progress)
    }

    fn compact_pages(
        &self,
        pages: Pages,
        progress: impl FnMut(CompactProgress) -> ControlFlow<()>,
    ) -> Result<CompactReport> {
        let engine = self.engine();
        engine.check_writable()?;
        let _only = loop {
            if let Some(only) = engine.compacting.try_lock() {
                break only;
            }
            if engine.giving_back.is_by_hand() {
                return Err(Error::Busy {
                    what: "a compaction is running",
                });
            }
            // What goes on by itself gives way.
            engine.giving_back.ask_to_end();
            thread::park_timeout(GARBAGE_PAUSE);
            engine.check_writable()?;
        };
        // Ends before the lock does.
        let _by_hand = engine.giving_back.begin_by_hand();
        let mut compaction = Compaction::new(engine, pages, progress);
        tracing::info!("compaction begins");
        let result = compaction.run();
        match &result {
            Ok(report) => tracing::info!(
                before_bytes = report.data_bytes_before,
                after_bytes = report.data_bytes_after,
                finished = report.finished,
                "compaction ends"
            ),
            Err(error) => tracing::warn!(%error, "compaction failed"),
        }
        result
    }
}

impl<'a, P: FnMut(CompactProgress) -> ControlFlow<()>> Compaction<'a, P> {
    /// Returns a compaction that has not begun. The caller has `Engine::compacting`.
    pub(super) fn new(engine: &'a Engine, pages: Pages, progress: P) -> Self {
        Self {
            engine,
            pages,
            at_close: false,
            progress,
            phase: CompactPhase::Garbage,
            share: 0.0,
            steps: 0,
        }
    }

    fn run(&mut self) -> Result<CompactReport> {
        let began = time::now();
        let engine = self.engine;
        let count = |ticker| engine.store.statistics.get(ticker);
        let counts = || {
            [
                Ticker::PagesMerged,
                Ticker::PagesPacked,
                Ticker::CompactPages,
                Ticker::CompactChunks,
            ]
            .map(count)
        };
        let before = counts();
        let mut report = CompactReport {
            data_bytes_before: engine.store.space.blocks() * engine.store.space.block_bytes(),
            ..CompactReport::default()
        };
        match self.parts(&mut report) {
            Ok(()) => report.finished = true,
            Err(End::Stopped) => {}
            Err(End::Error(error)) => return Err(error),
        }
        let after = counts();
        let [merged, packed, pages, chunks] =
            std::array::from_fn(|index| after[index].saturating_sub(before[index]));
        let block_bytes = engine.store.space.block_bytes();
        Ok(CompactReport {
            data_bytes_after: engine.store.space.blocks() * block_bytes,
            data_free_bytes: engine.store.space.space().free_blocks() * block_bytes,
            pages_merged: merged,
            pages_packed: packed,
            pages_moved: pages,
            chunks_moved: chunks,
            elapsed: began.elapsed(),
            ..report
        })
    }

    fn parts(&mut self, report: &mut CompactReport) -> Part<()> {
        self.go_on(CompactPhase::Garbage, 0.0)?;
        self.wait_for_garbage()?;
        report.reclaimed = self.reclaim_leaks()?;
        self.go_on(CompactPhase::Pack, PACK_FROM)?;
        let _low = self.engine.store.space.begin_low();
        match self.pages {
            Pages::Packed => self.pack_trees(PACK_FROM, MOVE_FROM)?,
            Pages::All => {
                self.pack_trees(PACK_FROM, REWRITE_FROM)?;
                self.write_all_again((REWRITE_FROM, MOVE_FROM))?;
            }
        }
        self.move_to_front()?;
        self.go_on(CompactPhase::Cut, CUT_FROM)?;
        report.log_bytes_given_back = self.cut_files()?;
        Ok(())
    }

    /// Waits until the maintenance thread has freed all garbage that nobody reads, or has failed
    /// to.
    fn wait_for_garbage(&mut self) -> Part<()> {
        let registry = &self.engine.store.registry;
        // Only garbage that exists now: readers that end ask for new searches again and again.
        let wanted = registry.wanted();
        while !registry.is_served(wanted) && !registry.has_failed(wanted) {
            self.go_on(CompactPhase::Garbage, 0.0)?;
            thread::park_timeout(GARBAGE_PAUSE);
        }
        Ok(())
    }

    /// Reports the progress; an error if the compaction must end.
    pub(super) fn go_on(&mut self, phase: CompactPhase, share: f64) -> Part<()> {
        self.check()?;
        assert!((0.0..=1.0).contains(&share), "more than all is done");
        self.phase = phase;
        self.share = self.share.max(share);
        let progress = CompactProgress {
            phase,
            share: self.share,
        };
        match (self.progress)(progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(End::Stopped),
        }
    }

    /// As [`Compaction::go_on`], but reports only every [`STEPS_PER_CALL`] steps; `share` of the
    /// part from `from` to `to` is done.
    pub(super) fn step(
        &mut self,
        phase: CompactPhase,
        (from, to): (f64, f64),
        share: f64,
    ) -> Part<()> {
        assert!(from <= to, "a part ends before it begins");
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_PER_CALL) {
            return self.go_on(phase, from + (to - from) * share.clamp(0.0, 1.0));
        }
        self.check()
    }

    /// As [`Compaction::go_on`], within a wait of a step: nothing is done meanwhile.
    pub(super) fn keep_waiting(&mut self) -> Part<()> {
        self.go_on(self.phase, self.share)
    }

    /// Blocks until a checkpoint that began after the call is durable.
    ///
    /// # Errors
    /// [`Error::Full`] if it waits for room on the disk, which may never come.
    pub(super) fn checkpoint(&self) -> Part<()> {
        match self.engine.checkpoint_if_room()? {
            true => Ok(()),
            false => Err(self.engine.store.shortage_error().into()),
        }
    }

    /// Checks that the store still takes writes.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`].
    pub(super) fn check(&self) -> Part<()> {
        if self.engine.store.life.is_closing() && !self.at_close {
            return Err(End::Error(Error::Closed));
        }
        Ok(self.engine.store.check_poison()?)
    }
}
