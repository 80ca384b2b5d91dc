//! Free space of the data file goes back by itself: a thread watches how much is free, and moves
//! what lies behind it to the front as a compaction does, within a rate (decision 082).
//!
//! It packs no leaves, and leaves mapping and log as they are. A compaction that somebody asks for
//! ends it.

use std::ops::ControlFlow;

use pando_stats::Ticker;
use pando_sync::thread;
use pando_sync::time::{self, Duration};

use crate::compact::progress::CompactProgress;
use crate::compact::run::{Compaction, End, Pages, Part};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::state::giving_back::{Sight, Watch};

/// Bytes that are moved in a second, at most.
const RATE_BYTES: u64 = 32 << 20;
/// A store that closes moves things for so long, at most.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Longest pause before the thread looks whether it is to end.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Shortest pause between two looks at how much is free.
const LOOK_MIN: Duration = Duration::from_millis(1);
/// Longest pause between two looks at how much is free.
const LOOK_MAX: Duration = Duration::from_secs(1);

impl Engine {
    /// Loop of the thread.
    pub(crate) fn run_giving_back(&self) {
        // With discards the file system has what is free.
        let Some(wait) = self
            .options
            .give_back_after
            .filter(|_| !self.options.discard)
        else {
            return;
        };
        let mut watch = Watch::new(wait, time::now());
        while !self.store.life.is_closing() {
            thread::park_timeout((wait / 4).clamp(LOOK_MIN, LOOK_MAX));
            if self.check_writable().is_err()
                || self.holds_blocks()
                || !watch.look(time::now(), self.sight())
            {
                continue;
            }
            let before = self.data_bytes();
            match self.give_back() {
                Ok(()) => {}
                // There is no room to move anything: later, perhaps.
                Err(Error::Full { .. } | Error::Closed) => {}
                Err(error) => tracing::warn!(%error, "free space of the data file stays"),
            }
            watch.ran(time::now(), (before, self.data_bytes()));
        }
    }

    /// True while a settled snapshot is there, or is made: the blocks of what is moved would be its
    /// own, and nothing would become free.
    pub(super) fn holds_blocks(&self) -> bool {
        self.kept.bounds().is_some()
    }

    fn data_bytes(&self) -> u64 {
        self.store.space.blocks() * self.store.space.block_bytes()
    }

    fn sight(&self) -> Sight {
        let space = &self.store.space;
        Sight {
            file: self.data_bytes(),
            spare: space.spare(0) * space.block_bytes(),
            trough: space
                .take_trough()
                .map(|blocks| blocks * space.block_bytes()),
            log_end: self.log.reserved_end(),
        }
    }

    /// Moves what is used to the front of the data file, and cuts the file. Ends early if somebody
    /// wants to compact.
    pub(super) fn give_back(&self) -> Result<()> {
        let Some(_only) = self.compacting.try_lock() else {
            return Ok(());
        };
        self.giving_back.begin();
        let before = self.data_bytes();
        let began = time::now();
        let (mut moved, mut seen) = (0, self.moved_bytes());
        let mut compaction = Compaction::new(self, Pages::Packed, |_: CompactProgress| {
            // The counters begin at 0 again when somebody resets them.
            let now = self.moved_bytes();
            moved += now.checked_sub(seen).unwrap_or(now);
            seen = now;
            let due = Duration::from_millis(moved * 1000 / RATE_BYTES);
            self.pause_until(|| due.saturating_sub(began.elapsed()))
        });
        let end = compaction.give_back();
        tracing::info!(
            before_bytes = before,
            after_bytes = self.data_bytes(),
            moved_bytes = moved,
            "free space of the data file went back"
        );
        match end {
            Ok(()) | Err(End::Stopped) => Ok(()),
            Err(End::Error(error)) => Err(error),
        }
    }

    /// As [`Engine::give_back`], for a store that closes, and at any rate. The caller has
    /// `Engine::compacting`.
    pub(super) fn give_back_at_close(&self) -> Result<()> {
        let began = time::now();
        let go_on = |_: CompactProgress| match began.elapsed() < CLOSE_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        let mut compaction = Compaction::new(self, Pages::Packed, go_on);
        compaction.at_close = true;
        match compaction.give_back() {
            Ok(()) | Err(End::Stopped) => Ok(()),
            Err(End::Error(error)) => Err(error),
        }
    }

    /// Bytes of pages and chunks that compactions have moved.
    fn moved_bytes(&self) -> u64 {
        let count = |ticker| self.store.statistics.get(ticker);
        let pages = count(Ticker::CompactPages) * self.store.pool.page_size().bytes() as u64;
        pages + count(Ticker::CompactChunks) * u64::from(self.chunk_bytes())
    }

    /// Waits while `early` returns how much too early it is; ends the run if it is to end.
    fn pause_until(&self, early: impl Fn() -> Duration) -> ControlFlow<()> {
        loop {
            let is_unwanted = self.giving_back.is_unwanted() || self.holds_blocks();
            if is_unwanted || self.store.life.is_closing() {
                return ControlFlow::Break(());
            }
            let early = early();
            if early.is_zero() {
                return ControlFlow::Continue(());
            }
            thread::park_timeout(early.min(PAUSE_MAX));
        }
    }
}

impl<P: FnMut(CompactProgress) -> ControlFlow<()>> Compaction<'_, P> {
    fn give_back(&mut self) -> Part<()> {
        let _low = self.engine.store.space.begin_low();
        let moved = self.move_to_front();
        // However that has ended: what has left the allocator leaves the file.
        self.check()?;
        let cut = self.cut_data();
        moved.and(cut)
    }
}
