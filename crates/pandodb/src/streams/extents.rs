//! Extents for chunks: runs of free blocks, for which the caller waits while that can help.

use pando_format::Extent;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::pages::store::pause;
use crate::wait::reason::{Step, WaitReason};

/// How many checkpoints it waits for on a full disk: the first frees what is retired now, the
/// second what garbage collection retires in the meantime.
const CHECKPOINTS_MAX: u32 = 2;

/// How many turns it waits for garbage collection on a full disk: a few tenths of a second.
const GARBAGE_TURNS: u32 = 4096;

impl Engine {
    /// Takes a run of `blocks` free blocks. Blocks until there is one.
    pub(crate) fn run_of_blocks(&self, blocks: u32) -> Result<Extent> {
        let mut checkpoints = 0;
        loop {
            match self.block(|_| self.try_run_of_blocks(blocks)) {
                Err(full @ Error::Full { .. }) if checkpoints < CHECKPOINTS_MAX => {
                    checkpoints += 1;
                    self.wait_for_garbage();
                    // This thread also reads and writes other values.
                    if !self.checkpoint_if_room()? {
                        return Err(full);
                    }
                }
                other => return other,
            }
        }
    }

    /// Gives the maintenance thread some time to free what nobody reads: then it is retired, and
    /// the next checkpoint makes it available.
    fn wait_for_garbage(&self) {
        let mut turns = 0;
        while self.store.registry.is_wanted()
            && turns < GARBAGE_TURNS
            && !self.store.life.is_ended()
        {
            pause(&mut turns);
        }
    }

    /// Makes one attempt to take a run of `blocks` free blocks.
    pub(crate) fn try_run_of_blocks(&self, blocks: u32) -> Step<Extent> {
        self.check_writable()?;
        match self
            .store
            .space
            .try_take_run(blocks, || self.store.committed_blocks())
        {
            Some(Some(extent)) => Ok(extent),
            _ if self.is_disk_full() => Err(self.store.space.full_error().into()),
            Some(None) => Err(WaitReason::Run(blocks).into()),
            None => Err(WaitReason::Blocks(blocks.into()).into()),
        }
    }
}
