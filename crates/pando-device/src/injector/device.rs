//! The device, and the levers of those who test with it.

use std::io;

use pando_sync::{Arc, Mutex, Rank};

use super::channel::InjectorChannel;
use super::file::InjectorFile;
use crate::device::{ChannelOptions, Device, OpenOptions};
use crate::error::{Error, Result};
use crate::faulty::plan::{Fault, FaultPlan, Operation, Plans};
use crate::faulty::random::Random;

/// A fault that strikes by chance.
#[derive(Debug)]
struct Chance {
    operation: Operation,
    prefix: String,
    once_in: u64,
    fault: Fault,
}

#[derive(Debug)]
struct State {
    plans: Plans,
    chances: Vec<Chance>,
    random: Random,
    /// Completions come late and in any order.
    reorders: bool,
}

/// Decides what is struck; shared by device, files and channels.
#[derive(Debug)]
pub(super) struct Injector(Mutex<State>);

impl Injector {
    /// Counts an operation and says what happens to it.
    pub(super) fn strike(&self, operation: Operation, name: &str) -> Option<Fault> {
        let state = &mut *self.0.lock();
        let mut fault = state.plans.strike(operation, name);
        for chance in &state.chances {
            let matches = chance.operation == operation && name.starts_with(&chance.prefix);
            if matches && state.random.once_in(chance.once_in) && fault.is_none() {
                fault = Some(chance.fault);
                state.plans.struck += 1;
            }
        }
        fault
    }

    /// As [`Injector::strike`], for an operation that either happens or fails. False: it is lost.
    pub(super) fn pass(&self, operation: Operation, name: &str) -> Result<bool> {
        match self.strike(operation, name) {
            Some(Fault::Lost) => Ok(false),
            Some(Fault::Yield(times)) => {
                give_way(times);
                Ok(true)
            }
            Some(fault) => Err(error_of(fault, operation, name)),
            None => Ok(true),
        }
    }

    /// For how many reaps a completion stays behind.
    pub(super) fn delay(&self) -> u32 {
        let mut state = self.0.lock();
        match state.reorders {
            true => state.random.index(4) as u32,
            false => 0,
        }
    }
}

pub(super) fn give_way(times: u32) {
    (0..times).for_each(|_| pando_sync::thread::yield_now());
}

/// What an operation fails with that `fault` strikes.
pub(super) fn error_of(fault: Fault, operation: Operation, name: &str) -> Error {
    let verb = operation.verb();
    let system = |code| Error::from_io(verb, name, io::Error::from_raw_os_error(code));
    match fault {
        Fault::Full => system(libc::ENOSPC),
        Fault::Denied => system(libc::EACCES),
        Fault::Crash | Fault::CrashLater { .. } => Error::Crashed,
        Fault::Io | Fault::Short(_) | Fault::Lost | Fault::Misdirected(_) | Fault::Yield(_) => {
            system(libc::EIO)
        }
    }
}

/// A device whose operations fail on demand.
#[derive(Debug, Clone)]
pub struct InjectorDevice<D> {
    inner: D,
    injector: Arc<Injector>,
}

impl<D: Device> InjectorDevice<D> {
    /// Puts faults over `inner`: none as long as none are asked for; `seed` decides everything that
    /// is random.
    pub fn new(inner: D, seed: u64) -> Self {
        let state = State {
            plans: Plans::default(),
            chances: Vec::new(),
            random: Random::new(seed),
            reorders: false,
        };
        Self {
            inner,
            injector: Arc::new(Injector(Mutex::new(Rank::Leaf, state))),
        }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Adds a fault to come. [`Operation::Channel`] counts channels as they are made;
    /// [`Fault::Yield`] of a request keeps its completion back for so many reaps.
    pub fn fail(&self, plan: FaultPlan) {
        self.injector.0.lock().plans.add(plan);
    }

    /// Strikes one of `once_in` operations on files whose name begins with `prefix`, by chance.
    pub fn fail_by_chance(&self, operation: Operation, prefix: &str, once_in: u64, fault: Fault) {
        assert!(once_in > 0, "once in no times");
        self.injector.0.lock().chances.push(Chance {
            operation,
            prefix: prefix.to_owned(),
            once_in,
            fault,
        });
    }

    /// Completions come late and in any order from here on.
    pub fn reorder(&self) {
        self.injector.0.lock().reorders = true;
    }

    /// Forgets all faults to come.
    pub fn clear_faults(&self) {
        let mut state = self.injector.0.lock();
        state.plans.clear();
        state.chances.clear();
        state.reorders = false;
    }

    /// How many operations were struck.
    pub fn faults_struck(&self) -> u64 {
        self.injector.0.lock().plans.struck
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
