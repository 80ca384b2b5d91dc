//! The device, and the levers of those who test with it.

use super::channel::FaultyChannel;
use super::directory::Directory;
use super::file::FaultyFile;
use super::image::CrashMode;
use super::plan::{Fault, FaultPlan, Operation};
use super::random::Random;
use super::state::{ContextsSeen, State};
use crate::device::{ChannelOptions, Device, OpenOptions};
use crate::error::Result;
use crate::name;

/// A directory in memory that fails and crashes on demand.
#[derive(Debug, Clone)]
pub struct FaultyDevice {
    directory: Directory,
}

impl FaultyDevice {
    /// An empty directory; `seed` decides everything that is random.
    pub fn new(seed: u64) -> Self {
        Self::from_state(State::new(seed))
    }

    fn from_state(state: State) -> Self {
        Self {
            directory: Directory::new(state),
        }
    }

    /// How many syncs, of files and of the directory, have begun.
    pub fn sync_points(&self) -> u64 {
        self.directory.lock().syncs
    }

    /// How many writes have begun.
    pub fn writes(&self) -> u64 {
        self.directory.lock().writes
    }

    /// How many operations were struck by a plan.
    pub fn faults_struck(&self) -> u64 {
        self.directory.lock().plans.struck
    }

    /// Crashes when the `n`-th sync point since the device was made begins (from 1), before it
    /// takes effect.
    pub fn crash_at_sync(&self, n: u64) {
        self.directory.lock().crash_at_sync = Some(n);
    }

    /// How many operations that may change something have begun: all but reads and the making of
    /// channels.
    pub fn changes(&self) -> u64 {
        self.directory.lock().changes
    }

    /// Crashes when the `n`-th operation that may change something since the device was made
    /// begins (from 1), before it takes effect.
    pub fn crash_at_change(&self, n: u64) {
        self.directory.lock().crash_at_change = Some(n);
    }

    /// Crashes when `n` writes since the device was made have been done. The last of them ends with
    /// `Crashed` and may survive, as any write that was not synced.
    pub fn crash_after_writes(&self, n: u64) {
        self.directory.lock().crash_after_writes = Some(n);
    }

    /// Crashes: every operation from here on fails with `Crashed`.
    pub fn crash_now(&self) {
        self.directory.lock().crashed = true;
    }

    /// True after a crash.
    pub fn is_crashed(&self) -> bool {
        self.directory.lock().crashed
    }

    /// A new directory with what a crash at this moment leaves of this one, which stays as it is:
    /// other seeds give other survivors. Plans do not carry over, the capacity does.
    pub fn after_crash(&self, seed: u64, mode: CrashMode) -> Self {
        Self::from_state(self.directory.lock().survivors(seed, mode))
    }

    /// A new directory as the next process finds this one, which stays as it is: a process has
    /// ended, after a crash or by itself, and the kernel goes on. All that was written is seen,
    /// and no more of it is durable. `seed` decides of which files the kernel drops what it takes
    /// for clean, a sync that failed among it. Plans do not carry over, the capacity does.
    pub fn after_exit(&self, seed: u64) -> Self {
        Self::from_state(self.directory.lock().as_found(seed))
    }

    /// Adds a fault to come.
    pub fn fail(&self, plan: FaultPlan) {
        self.directory.lock().plans.add(plan);
    }

    /// The `n`-th write from now (from 1) to a file whose name begins with `prefix` reports success
    /// and does nothing.
    pub fn lose_write(&self, n: u64, prefix: &str) {
        self.fail(FaultPlan::once(Operation::Write, prefix, n, Fault::Lost));
    }

    /// Forgets all faults to come (not a crash that is planned).
    pub fn clear_faults(&self) {
        self.directory.lock().plans.clear();
    }

    /// Forgets the crashes that are planned, of plans too. False if one has happened.
    pub fn clear_crashes(&self) -> bool {
        let mut state = self.directory.lock();
        state.crash_at_change = None;
        state.crash_at_sync = None;
        state.crash_after_writes = None;
        state.plans.clear_crashes();
        !state.crashed
    }

    /// What the lengths of all files may sum to; less than they do only stops growth.
    pub fn set_capacity(&self, bytes: u64) {
        self.directory.lock().capacity = bytes;
    }

    /// What files that are opened as direct from now on are aligned to: a power of two.
    pub fn set_direct_alignment(&self, bytes: usize) {
        assert!(bytes.is_power_of_two(), "an alignment of {bytes}");
        self.directory.lock().direct_alignment = bytes;
    }

    /// What the device has seen of the contexts that its readers pass.
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
        let byte = image.seen()[offset as usize] ^ (1 << bit);
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

    /// The content of a file as programs see it, also after a crash; empty if there is none.
    pub fn snapshot_file(&self, name: &str) -> Vec<u8> {
        let mut state = self.directory.lock();
        state
            .image_named(name)
            .map_or_else(Vec::new, |image| image.seen().to_vec())
    }

    /// The content of a file as its last sync left it; empty if there is none.
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
