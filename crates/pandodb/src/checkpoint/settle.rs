//! Settling: snapshots that read old versions in memory go on on disk (decision 071).
//!
//! A snapshot of LSN S is registered from before the cut of a checkpoint that is kept until after
//! this. So what it reads is in the pages of the checkpoint, pages of replaced values and of
//! dropped trees too, but for what batches from S to the checkpoint have replaced in leaves. That
//! is in the old versions, all of it since the cut. It is written to disk as a sorted run. Then the
//! snapshot reads checkpoint and run, and its registration ends.

use std::ops::ControlFlow;

use pando_format::Extent;
use pando_sync::time::Duration;
use pando_sync::{Arc, thread};
use pando_versions::NotExported;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::kept::cut::KeptHandle;
use crate::kept::run::{Run, RunWriter};
use crate::kept::settled::Settled;
use crate::kept::young::Young;

/// Pause of a run that waits for the data file to grow.
const PAUSE: Duration = Duration::from_millis(1);

impl Engine {
    /// Settles the snapshots that are not newer than `cut`. One that cannot be settled stays as it
    /// is.
    pub(super) fn settle_snapshots(&self, cut: &KeptHandle) {
        for young in self.kept.young_until(cut.lsn()) {
            let lsn = young.lsn();
            match self.settle(&young, cut) {
                Ok(true) => tracing::info!(%lsn, "a snapshot goes on on disk"),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%lsn, %error, "a snapshot stays in memory");
                    self.kept.note_failure();
                }
            }
        }
        // Old versions and garbage that nobody needs any longer.
        self.store.registry.want();
        self.store.space.growth.notify_all();
    }

    /// Settles `young`. Returns false if it has ended.
    fn settle(&self, young: &Arc<Young>, cut: &KeptHandle) -> Result<bool> {
        let Some(run) = self.write_run(young)? else {
            return Ok(false);
        };
        // What was exported is right if the registration has not ended since.
        if young.registration().is_ended() {
            return Ok(false);
        }
        self.kept.check_room(run.memory_bytes())?;
        cut.add_reader(young.lsn(), run.memory_bytes());
        young.settle(Settled::before_checkpoint(young.lsn(), cut.clone(), run));
        Ok(true)
    }

    /// Takes `blocks` blocks of the data file, which may have to grow. Blocks.
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::Closed`], [`Error::Poisoned`].
    fn blocks_for_run(&self, blocks: u32) -> Result<Extent> {
        let space = &self.store.space;
        loop {
            match space.try_take_run(blocks, || self.store.committed_blocks()) {
                Some(Some(extent)) => return Ok(extent),
                Some(None) => space.want_run(blocks),
                None => space.want(blocks.into()),
            }
            if space.is_full() {
                return Err(space.full_error());
            }
            self.check_writable()?;
            thread::park_timeout(PAUSE);
        }
    }

    /// Writes what batches have replaced since `young`. Returns None if that has ended.
    fn write_run(&self, young: &Young) -> Result<Option<Run>> {
        let store = &self.store;
        let mut writer = RunWriter::new(&store.device, &store.data, &store.space);
        let mut failed = None;
        let exported = self
            .old_versions
            .versions
            .export(young.lsn(), |tree, key, record| {
                match writer.push((tree, key), record, |blocks| self.blocks_for_run(blocks)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failed = Some(error);
                        ControlFlow::Break(())
                    }
                }
            });
        match (exported, failed) {
            (_, Some(error)) => Err(error),
            (Err(NotExported::LongKey), None) => Err(Error::Full {
                what: "keys are too long for their old versions to be written in order".into(),
            }),
            (Err(NotExported::Ended | NotExported::Stopped), None) => Ok(None),
            (Ok(()), None) => {
                let run = writer.finish(|blocks| self.blocks_for_run(blocks))?;
                Ok(Some(run))
            }
        }
    }
}
