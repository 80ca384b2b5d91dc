//! The device, and its controls for tests.

use pando_sync::Arc;

use super::channel::InjectorChannel;
use super::faults::{Chance, Injector, error_of};
use super::file::InjectorFile;
use crate::device::{ChannelOptions, Device, OpenOptions};
use crate::error::Result;
use crate::faulty::plan::{Fault, FaultPlan, Operation};

/// A device whose operations fail on demand.
#[derive(Debug, Clone)]
pub struct InjectorDevice<D> {
    inner: D,
    injector: Arc<Injector>,
}

impl<D: Device> InjectorDevice<D> {
    /// Wraps `inner`, initially without faults. `seed` decides everything that is random.
    pub fn new(inner: D, seed: u64) -> Self {
        Self {
            inner,
            injector: Arc::new(Injector::new(seed)),
        }
    }

    /// Returns the inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Adds a planned fault. [`Operation::Channel`] counts channels as they are made.
    /// [`Fault::Yield`] of a request holds its completion back for that many reaps.
    pub fn fail(&self, plan: FaultPlan) {
        self.injector.add(plan);
    }

    /// Strikes one in `once_in` operations on files whose name begins with `prefix`, at random.
    pub fn fail_by_chance(&self, operation: Operation, prefix: &str, once_in: u64, fault: Fault) {
        self.injector.add_chance(Chance {
            operation,
            prefix: prefix.to_owned(),
            once_in,
            fault,
        });
    }

    /// Makes completions arrive late and in any order from now on.
    pub fn reorder(&self) {
        self.injector.reorder();
    }

    /// Removes all planned faults.
    pub fn clear_faults(&self) {
        self.injector.clear();
    }

    /// Returns the number of operations that were struck.
    pub fn faults_struck(&self) -> u64 {
        self.injector.struck()
    }
}

impl<D: Device> Device for InjectorDevice<D> {
    type File = InjectorFile<D::File>;
    type Channel = InjectorChannel<D::Channel>;

    fn backend(&self) -> &'static str {
        "faulty"
    }

    fn open(&self, name: &str, options: OpenOptions) -> Result<Self::File> {
        if !self.injector.pass(Operation::Open, name)? {
            return Err(error_of(Fault::Lost, Operation::Open, name));
        }
        let inner = self.inner.open(name, options)?;
        Ok(InjectorFile::new(inner, name, self.injector.clone()))
    }

    fn remove(&self, name: &str) -> Result<()> {
        match self.injector.pass(Operation::Remove, name)? {
            true => self.inner.remove(name),
            false => Ok(()),
        }
    }

    fn rename(&self, name: &str, to: &str) -> Result<()> {
        match self.injector.pass(Operation::Rename, name)? {
            true => self.inner.rename(name, to),
            false => Ok(()),
        }
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn sync_directory(&self) -> Result<()> {
        match self.injector.pass(Operation::SyncDirectory, "")? {
            true => self.inner.sync_directory(),
            false => Ok(()),
        }
    }

    fn channel(&self, options: ChannelOptions) -> Result<Self::Channel> {
        if !self.injector.pass(Operation::Channel, "")? {
            return Err(error_of(Fault::Lost, Operation::Channel, ""));
        }
        let (depth, notify) = (options.depth, options.notify.clone());
        let inner = self.inner.channel(options)?;
        Ok(InjectorChannel::new(inner, depth, notify))
    }

    fn free_bytes(&self) -> Result<u64> {
        self.inner.free_bytes()
    }

    fn check_process(&self) -> Result<()> {
        self.inner.check_process()
    }
}
