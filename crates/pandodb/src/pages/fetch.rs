//! Reads pages that were missed, and runs steps until they succeed, for callers that may block.

use pando_format::PageId;
use pando_pool::{LoadStart, LoadTicket, Resource, Restart};
use pando_stats::Ticker;
use pando_sync::gate::Closed;
use pando_sync::{park, thread, thread_waker};
use pando_tree::Tree;

use crate::error::{Error, Result};
use crate::pages::fetcher::reap_own;
use crate::pages::read_context::ReadContext;
use crate::pages::store::{SLEEP, SPIN_TURNS, Store, pause, ticker_of};

/// Faults of one step after which it helps with write-back.
const FAULTS_BEFORE_HELP: u32 = 8;

impl Store {
    /// Closes the apply gate. Blocks until nobody is inside; the thread of an event loop publishes
    /// its own reads meanwhile, for which somebody inside may wait.
    pub(crate) fn close_gate(&self) -> Closed<'_> {
        self.pool.gate().close_serving(|| {
            reap_own(self);
        })
    }

    /// Reads a missed page, or waits for the thread that reads it; returns that thread's error.
    /// Blocks.
    pub(crate) fn fetch(&self, page: PageId) -> Result<()> {
        let mut turns = 0;
        let before = self.failed_reads.now();
        loop {
            match self.pool.begin_load(page) {
                Ok(LoadStart::Claimed(ticket)) => return self.read_claimed(ticket),
                Ok(LoadStart::Resident | LoadStart::Free) => return Ok(()),
                Ok(LoadStart::Loading) => {
                    if !self.pool.wait_for_load(page, &thread_waker()) {
                        if reap_own(self) {
                            thread::park_timeout(SLEEP);
                        } else {
                            park();
                        }
                    }
                    if let Some(error) = self.failed_reads.since(page, before) {
                        return Err(error);
                    }
                }
                Err(restart) => self.serve(restart, &mut turns)?,
            }
        }
    }

    /// Reads the page of a claim and publishes it. Blocks.
    pub(crate) fn read_claimed(&self, ticket: LoadTicket) -> Result<()> {
        let (offset, bytes) = match self.place_of(&ticket) {
            Ok(place) => place,
            Err(error) => return Err(self.give_up(ticket, error)),
        };
        ReadContext::of_thread(&self.statistics, |context| {
            match context.read(&self.data, offset, bytes) {
                Ok((bytes, decoder)) => self.publish_with(ticket, bytes, decoder),
                Err((error, noted)) => {
                    Err(self.read_failed(ticket, format_args!("{error}{noted}")))
                }
            }
        })
    }

    /// Does what an unfinished step needs before its next attempt: fetches a page, helps with
    /// write-back, or pauses. Blocks.
    pub(crate) fn serve(&self, restart: Restart, turns: &mut u32) -> Result<()> {
        match restart {
            Restart::Conflict => {
                self.statistics.tick(Ticker::RestartsConflict, 1);
                if *turns >= SPIN_TURNS {
                    // This thread may itself have to publish the page that is latched or being
                    // read.
                    reap_own(self);
                }
                pause(turns);
            }
            Restart::Wait(resource @ (Resource::Frames | Resource::Images)) => {
                self.statistics.tick(ticker_of(resource), 1);
                if resource == Resource::Images && self.life.is_poisoned() {
                    // As soon as the poison is known everywhere, nobody needs an image.
                    pause(turns);
                    return self.check_process();
                }
                if self.help_with_frames()? == 0 {
                    self.pool.work().notify_all();
                    pause(turns);
                }
            }
            Restart::Wait(Resource::PageIds) => {
                return Err(Error::Full {
                    what: "the page table is as large as max_memory allows; raise it".into(),
                });
            }
            Restart::Wait(_) => pause(turns),
            Restart::Fault(page) => {
                *turns += 1;
                if turns.is_multiple_of(FAULTS_BEFORE_HELP) {
                    // With few clean frames, one page evicts the other: make more clean frames.
                    // While a store is being opened, nobody else does.
                    self.help_with_frames()?;
                }
                self.fetch(page)?;
            }
            Restart::Damaged(page, what) => {
                return Err(Error::CorruptPage {
                    page,
                    extent: None,
                    what: what.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Runs `step` until it succeeds. Blocks; do not call it inside the gate except where that is
    /// allowed.
    pub(crate) fn drive<T>(
        &self,
        mut step: impl FnMut() -> std::result::Result<T, Restart>,
    ) -> Result<T> {
        let mut turns = 0;
        loop {
            match step() {
                Ok(value) => return Ok(value),
                Err(restart) => self.serve(restart, &mut turns)?,
            }
        }
    }

    /// Keeps the root of a tree in memory, unless the limit of wired frames is reached. Blocks.
    pub(crate) fn wire_root(&self, tree: Tree) -> Result<()> {
        // If the limit is reached, the root is cached like any other page.
        self.drive(|| self.pool.exclusive(tree.root).map(|root| root.wire()))?;
        Ok(())
    }
}
