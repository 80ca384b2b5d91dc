//! The choice of the operations that are struck, and of their faults.

use std::io;

use pando_sync::{Mutex, Rank};

use crate::error::{Error, Result};
use crate::faulty::plan::{Fault, FaultPlan, Operation, Plans};
use crate::faulty::random::Random;

/// A fault that strikes at random.
#[derive(Debug)]
pub(super) struct Chance {
    pub(super) operation: Operation,
    /// Prefix of the names of files that it may strike.
    pub(super) prefix: String,
    pub(super) once_in: u64,
    pub(super) fault: Fault,
}

#[derive(Debug)]
struct InjectorState {
    plans: Plans,
    chances: Vec<Chance>,
    random: Random,
    /// Completions arrive late and in any order.
    reorders: bool,
}

/// Decides which operations are struck. Shared by device, files and channels.
#[derive(Debug)]
pub(super) struct Injector(Mutex<InjectorState>);

impl Injector {
    /// Makes an injector that strikes nothing yet.
    pub(super) fn new(seed: u64) -> Self {
        Self(Mutex::new(
            Rank::Leaf,
            InjectorState {
                plans: Plans::default(),
                chances: Vec::new(),
                random: Random::new(seed),
                reorders: false,
            },
        ))
    }

    /// Adds a planned fault.
    pub(super) fn add(&self, plan: FaultPlan) {
        self.0.lock().plans.add(plan);
    }

    /// Adds a fault that strikes repeatedly.
    pub(super) fn add_chance(&self, chance: Chance) {
        assert!(chance.once_in > 0, "once in no times");
        self.0.lock().chances.push(chance);
    }

    /// Makes completions arrive late from now on.
    pub(super) fn reorder(&self) {
        self.0.lock().reorders = true;
    }

    /// Removes all planned faults.
    pub(super) fn clear(&self) {
        let mut state = self.0.lock();
        state.plans.clear();
        state.chances.clear();
        state.reorders = false;
    }

    /// Returns the number of operations that were struck.
    pub(super) fn struck(&self) -> u64 {
        self.0.lock().plans.struck
    }

    /// Counts an operation and returns what happens to it.
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

    /// Like [`Injector::strike`], for an operation that either happens or fails. Returns false if
    /// it is lost.
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

    /// Returns the number of reaps for which a completion is held back.
    pub(super) fn delay(&self) -> u32 {
        let mut state = self.0.lock();
        match state.reorders {
            true => u32::try_from(state.random.below(4)).expect("below 4"),
            false => 0,
        }
    }
}

/// Yields to other threads `times` times.
pub(super) fn give_way(times: u32) {
    (0..times).for_each(|_| pando_sync::thread::yield_now());
}

/// Returns the error of an operation that `fault` strikes.
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
