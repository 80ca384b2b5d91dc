//! The device, and its controls for tests.

use super::channel::FaultyChannel;
use super::directory::Directory;
use super::file::FaultyFile;
use super::image::CrashMode;
use super::plan::{Fault, FaultPlan, Operation};
use super::random::Random;
use super::state::{ContextsSeen, DirectoryState};
use crate::cast::usize_of;
use crate::device::{ChannelOptions, Device, OpenOptions};
use crate::error::Result;
use crate::name;

/// A directory in memory that fails and crashes on demand.
#[derive(Debug, Clone)]
pub struct FaultyDevice {
    directory: Directory,
}

impl FaultyDevice {
    /// Makes an empty directory. `seed` decides everything that is random.
    pub fn new(seed: u64) -> Self {
        Self::from_state(DirectoryState::new(seed))
    }

    fn from_state(state: DirectoryState) -> Self {
        Self {
            directory: Directory::new(state),
        }
    }

    /// Returns the number of syncs, of files and of the directory, that have begun.
    pub fn sync_points(&self) -> u64 {
        self.directory.lock().syncs
    }

    /// Returns the number of writes that have begun.
    pub fn writes(&self) -> u64 {
        self.directory.lock().writes
    }

    /// Returns the number of operations that a plan has struck.
    pub fn faults_struck(&self) -> u64 {
        self.directory.lock().plans.struck
    }

    /// Crashes when the `n`-th sync point since the device was made begins (from 1), before it
    /// takes effect.
    pub fn crash_at_sync(&self, n: u64) {
        self.directory.lock().crash_at_sync = Some(n);
    }

    /// Returns the number of operations that have begun and may change something: all except reads
    /// and making channels.
    pub fn changes(&self) -> u64 {
        self.directory.lock().changes
    }

    /// Crashes when the `n`-th operation that may change something since the device was made
    /// begins (from 1), before it takes effect.
    pub fn crash_at_change(&self, n: u64) {
        self.directory.lock().crash_at_change = Some(n);
    }

    /// Crashes when `n` writes were done since the device was made. The last of them ends with
    /// `Crashed`, and may survive like any write that was not synced.
    pub fn crash_after_writes(&self, n: u64) {
        self.directory.lock().crash_after_writes = Some(n);
    }

    /// Crashes: every operation from now on fails with `Crashed`.
    pub fn crash_now(&self) {
        self.directory.lock().crashed = true;
    }

    /// Returns whether the device has crashed.
    pub fn is_crashed(&self) -> bool {
        self.directory.lock().crashed
    }

    /// Returns a new directory with what a crash at this moment leaves of this one, which does not
    /// change. Other seeds give other survivors. The new directory has the same capacity, but no
    /// plans.
    pub fn after_crash(&self, seed: u64, mode: CrashMode) -> Self {
        Self::from_state(self.directory.lock().survivors(seed, mode))
    }

    /// Returns a new directory as the next process finds this one, which does not change: the
    /// process has ended, by a crash or normally, and the kernel continues. Everything that was
    /// written is visible, and no more of it is durable than before. `seed` decides for which files
    /// the kernel drops cached content that it considers clean, including that of a failed sync.
    /// The new directory has the same capacity, but no plans.
    pub fn after_exit(&self, seed: u64) -> Self {
        Self::from_state(self.directory.lock().as_found(seed))
    }

    /// Adds a planned fault.
    pub fn fail(&self, plan: FaultPlan) {
        self.directory.lock().plans.add(plan);
    }

    /// The `n`-th write from now (from 1) to a file whose name begins with `prefix` reports success
    /// and does nothing.
    pub fn lose_write(&self, n: u64, prefix: &str) {
        self.fail(FaultPlan::once(Operation::Write, prefix, n, Fault::Lost));
    }

    /// Removes all planned faults, but not a planned crash.
    pub fn clear_faults(&self) {
        self.directory.lock().plans.clear();
    }

    /// Removes all planned crashes, including those of plans. Returns false if one has happened
    /// already.
    pub fn clear_crashes(&self) -> bool {
        let mut state = self.directory.lock();
        state.crash_at_change = None;
        state.crash_at_sync = None;
        state.crash_after_writes = None;
        state.plans.clear_crashes();
        !state.crashed
    }

    /// Sets the limit of the sum of all file lengths in bytes. A limit below the present sum only
    /// stops growth.
    pub fn set_capacity(&self, bytes: u64) {
        self.directory.lock().capacity = bytes;
    }

    /// Sets the alignment in bytes, a power of two, of files that are opened as direct from now on.
    pub fn set_direct_alignment(&self, bytes: usize) {
        assert!(bytes.is_power_of_two(), "an alignment of {bytes}");
        self.directory.lock().direct_alignment = bytes;
    }

    /// Returns what the device has seen of the contexts that readers pass.
    pub fn contexts_seen(&self) -> ContextsSeen {
        self.directory.lock().contexts
    }

    /// Inverts bit `bit` (0 to 7) of the byte at `offset` on the medium.
    ///
    /// # Panics
    /// When the file does not exist or is shorter.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) {
        let mut state = self.directory.lock();
        let image = state.image_named(name).expect("the file exists");
        let byte = image.seen()[usize_of(offset)] ^ (1 << bit);
        image.damage(offset, &[byte]);
    }

    /// Replaces bytes on the medium: they are durable at once.
    ///
    /// # Panics
    /// When the file does not exist or is shorter.
    pub fn overwrite(&self, name: &str, offset: u64, bytes: &[u8]) {
        let mut state = self.directory.lock();
        let image = state.image_named(name).expect("the file exists");
        image.damage(offset, bytes);
    }

    /// Returns the content of a file as programs see it, also after a crash; empty if there is no
    /// such file.
    pub fn snapshot_file(&self, name: &str) -> Vec<u8> {
        let mut state = self.directory.lock();
        state
            .image_named(name)
            .map_or_else(Vec::new, |image| image.seen().to_vec())
    }

    /// Returns the content of a file as of its last sync; empty if there is no such file.
    pub fn durable_file(&self, name: &str) -> Vec<u8> {
        let mut state = self.directory.lock();
        state
            .image_named(name)
            .map_or_else(Vec::new, |image| image.safe().to_vec())
    }
}

impl Device for FaultyDevice {
    type File = FaultyFile;
    type Channel = FaultyChannel;

    fn backend(&self) -> &'static str {
        "faulty"
    }

    fn open(&self, name: &str, options: OpenOptions) -> Result<FaultyFile> {
        name::check_open(name, options)?;
        let directory = &self.directory;
        let id = directory.operate(Operation::Open, name, |state, _| state.open(name, options))?;
        Ok(FaultyFile::new(self.directory.clone(), id, name, options))
    }

    fn remove(&self, name: &str) -> Result<()> {
        name::check("remove", name)?;
        self.directory
            .operate(Operation::Remove, name, |state, fault| match fault {
                Some(Fault::Lost) => Ok(()),
                _ => state.remove(name),
            })
    }

    fn rename(&self, name: &str, to: &str) -> Result<()> {
        name::check_rename(name, to)?;
        self.directory
            .operate(Operation::Rename, name, |state, fault| match fault {
                Some(Fault::Lost) => Ok(()),
                _ => state.rename(name, to),
            })
    }

    fn list(&self) -> Result<Vec<String>> {
        let state = self.directory.lock();
        state.check_alive()?;
        Ok(state.names())
    }

    fn sync_directory(&self) -> Result<()> {
        self.directory
            .operate(Operation::SyncDirectory, "", |state, fault| {
                if fault != Some(Fault::Lost) {
                    state.sync_directory();
                }
                Ok(())
            })
    }

    fn channel(&self, options: ChannelOptions) -> Result<FaultyChannel> {
        let mut state = self.directory.lock();
        state.begin(Operation::Channel, "")?;
        let random = Random::new(state.random.number());
        Ok(FaultyChannel::new(random, options.depth, options.notify))
    }

    fn free_bytes(&self) -> Result<u64> {
        let state = self.directory.lock();
        state.check_alive()?;
        Ok(state.free())
    }
}
