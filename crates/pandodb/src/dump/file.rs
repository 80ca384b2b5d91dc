//! A dump that an open store writes of itself, to a file of its own directory (decision 139).
//!
//! It is written under another name, synced, and renamed at the end: under its own name there is
//! always a whole dump, or none. What a process leaves that ends early is removed by the next
//! opening of the store.

use std::cell::Cell;
use std::ops::ControlFlow;

use pando_device::{AnyFile, Create, Device, Error as DeviceError, File, OpenOptions};
use pando_sync::atomic::Ordering;
use pando_sync::time;

use crate::api::db::Db;
use crate::dump::report::{DumpFile, DumpProgress};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::names::{DUMP, HALF_DUMP};

/// What is written and not yet on disk, at most: a sync of the log, for which a commit waits, may
/// have to wait for what other files have in the page cache.
const UNSYNCED_BYTES: u64 = 4 << 20;
/// A dump leaves this share of what is free without it to the store,
const ROOM_LEFT_SHARE: u64 = 8;
/// but not more than this.
const ROOM_LEFT_BYTES: u64 = 256 << 20;

impl Db {
    /// Writes all tables as they are at this moment to the file [`DumpFile::NAME`] in the store's
    /// directory, as text from which [`load_dump`] makes a store; writes go on meanwhile. The file
    /// that is there is replaced when all is written and on disk, and not before. Calls `progress`
    /// before each piece; returns None if that has told it to stop. Blocks.
    ///
    /// It reads from a snapshot of [`Db::snapshot_settled`], past the cache of the store, and takes
    /// a megabyte or so of memory. On disk it takes what the text takes, beside what is replaced in
    /// the store meanwhile, and gives way to the store: it fails before the disk is full.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path();
    /// let db = pandodb::Db::open(path.join("store"))?;
    /// db.table("fruit")?.put(b"apple", b"red")?;
    /// let file = db.dump_to_file(|_| ControlFlow::Continue(()))?;
    /// assert_eq!(file.expect("it was not stopped").report.rows(), 1);
    ///
    /// let text = std::fs::File::open(path.join("store").join(pandodb::DumpFile::NAME))?;
    /// pandodb::load_dump(text, path.join("copy"), pandodb::Db::builder(), |_, _| ())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The file is as it was, unless it was the sync of the directory that failed.
    /// [`Error::Full`] if the disk has no room for the text, or for what commits replace meanwhile;
    /// [`Error::Busy`] while another call writes one; [`Error::CorruptPage`] for a damaged page;
    /// [`Error::Io`], also if a directory has the name; [`Error::Closed`]; [`Error::Poisoned`];
    /// [`Error::ReadOnly`].
    ///
    /// [`load_dump`]: crate::load_dump()
    pub fn dump_to_file(
        &self,
        progress: impl FnMut(DumpProgress) -> ControlFlow<()>,
    ) -> Result<Option<DumpFile>> {
        let engine = self.engine();
        engine.store.check_process()?;
        engine.check_not_read_only()?;
        if engine.dumping.swap(true, Ordering::Acquire) {
            return Err(Error::Busy {
                what: "a dump is being written",
            });
        }
        let _turn = Turn(engine);
        let began = time::now();
        tracing::info!(file = DUMP, "a dump begins");
        let written = self.write_dump(progress);
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &written {
            Ok(Some(DumpFile { report, bytes })) => {
                let (lsn, rows) = (report.lsn.0, report.rows());
                tracing::info!(lsn, rows, bytes, ms, "a dump is written");
            }
            Ok(None) => tracing::info!(ms, "a dump was told to end"),
            Err(error) => tracing::warn!(%error, ms, "no dump is written"),
        }
        written
    }

    fn write_dump(
        &self,
        mut progress: impl FnMut(DumpProgress) -> ControlFlow<()>,
    ) -> Result<Option<DumpFile>> {
        let mut file = HalfDump::create(self.engine())?;
        let snapshot = self.snapshot_settled()?;
        let (rows, is_stopped) = (Cell::new((0, 0)), Cell::new(false));
        let append = |text: &[u8]| {
            let (done, all): (u64, u64) = rows.get();
            let told = progress(DumpProgress {
                share: (done as f64 / all.max(1) as f64).min(1.0),
                bytes: file.bytes,
            });
            match told {
                ControlFlow::Continue(()) => file.append(text),
                ControlFlow::Break(()) => {
                    is_stopped.set(true);
                    Err(Error::aborted("it was told to stop"))
                }
            }
        };
        match snapshot.dump_to(append, |done, all| rows.set((done, all))) {
            Err(_) if is_stopped.get() => Ok(None),
            Err(Error::SnapshotEnded) => Err(self.engine().snapshot_gone()),
            Err(error) => Err(error),
            Ok(report) => {
                let bytes = file.finish()?;
                Ok(Some(DumpFile { report, bytes }))
            }
        }
    }
}

impl Engine {
    /// The error of a dump whose snapshot has ended.
    fn snapshot_gone(&self) -> Error {
        if self.store.life.is_closing() {
            return Error::Closed;
        }
        Error::Full {
            what: "commits needed the disk for what a dump was reading; make room and begin \
                   another dump"
                .into(),
        }
    }
}

/// The turn of the one dump that is written. Dropped at its end, also by a panic.
struct Turn<'a>(&'a Engine);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next one.
        self.0.dumping.store(false, Ordering::Release);
    }
}

/// A dump that is being written. Dropped before its end it leaves nothing.
struct HalfDump<'a> {
    engine: &'a Engine,
    /// None once it has its name.
    file: Option<AnyFile>,
    bytes: u64,
    /// So many are on disk.
    synced: u64,
}

impl<'a> HalfDump<'a> {
    /// Makes the file, if it can get its name in the end.
    fn create(engine: &'a Engine) -> Result<Self> {
        let device = &engine.store.device;
        match device.open(DUMP, OpenOptions::write()) {
            Err(error) if error.is_directory() => return Err(in_the_way(error)),
            // Any other one is replaced, whatever may be done to it.
            _ => {}
        }
        match device.remove(HALF_DUMP) {
            Err(error) if !error.is_not_found() => return Err(in_the_way(error)),
            _ => {}
        }
        let file = device
            .open(HALF_DUMP, OpenOptions::create(Create::New))
            .map_err(Error::io("making the file of a dump"))?;
        Ok(Self {
            engine,
            file: Some(file),
            bytes: 0,
            synced: 0,
        })
    }

    fn append(&mut self, text: &[u8]) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.check_room(text.len() as u64)?;
        let file = self.file.as_ref().expect("it has not ended");
        file.write_at(text, self.bytes)
            .map_err(Error::io("writing a dump"))?;
        self.bytes += text.len() as u64;
        if self.bytes - self.synced >= UNSYNCED_BYTES {
            file.sync().map_err(Error::io("syncing a dump"))?;
            self.synced = self.bytes;
        }
        Ok(())
    }

    /// Checks that the store has room behind the next `bytes`.
    fn check_room(&self, bytes: u64) -> Result<()> {
        let free = self.engine.store.device.free_bytes();
        let free = free.map_err(Error::io("looking for free space"))?;
        let left = room_left(self.bytes.saturating_add(free));
        if free >= bytes.saturating_add(left) {
            return Ok(());
        }
        Err(Error::Full {
            what: format!(
                "a dump gives way to the store when it has {} bytes: {free} are free, and {left} \
                 are left to the store; make room and begin another dump",
                self.bytes
            ),
        })
    }

    /// Gives the file its name, once all of it is on disk; returns its bytes.
    fn finish(mut self) -> Result<u64> {
        let device = &self.engine.store.device;
        let file = self.file.as_ref().expect("it has not ended");
        file.sync().map_err(Error::io("syncing a dump"))?;
        device.rename(HALF_DUMP, DUMP).map_err(in_the_way)?;
        self.file = None;
        device
            .sync_directory()
            .map_err(Error::io("syncing the directory of a dump"))?;
        Ok(self.bytes)
    }
}

impl Drop for HalfDump<'_> {
    fn drop(&mut self) {
        // Its room is free once it is closed, too.
        if self.file.take().is_none() {
            return;
        }
        if let Err(error) = self.engine.store.device.remove(HALF_DUMP) {
            tracing::warn!(%error, "a dump that was not finished stays until the next one");
        }
    }
}

/// Bytes of `free` ones, what would be free without a dump, that it leaves to the store.
fn room_left(free: u64) -> u64 {
    (free / ROOM_LEFT_SHARE).min(ROOM_LEFT_BYTES)
}

/// The error of a name that the file of a dump cannot have.
fn in_the_way(error: DeviceError) -> Error {
    match error.is_directory() {
        true => Error::io("the file of a dump needs the name of a directory: move it away")(error),
        false => Error::io("making the file of a dump")(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_leaves_room_to_the_store() {
        assert_eq!(room_left(0), 0);
        assert_eq!(room_left(80 << 20), 10 << 20);
        assert_eq!(room_left(1 << 40), 256 << 20);
    }
}
