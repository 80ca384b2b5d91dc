//! Plans: which operation fails, and how.
//!
//! Every plan counts the operations that it matches since it was added, even if another plan
//! strikes them first.

/// An operation that a plan can match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Opening or making a file.
    Open,
    /// Removing a file.
    Remove,
    /// Giving a file another name; matches its old one.
    Rename,
    /// Reading, blocking or through a channel.
    Read,
    /// Writing, vectored or not.
    Write,
    /// Making a file durable.
    Sync,
    /// Making names durable; matches the empty prefix only.
    SyncDirectory,
    /// Allocating space.
    Allocate,
    /// Changing a length.
    SetLen,
    /// Making a hole.
    Punch,
    /// Making a channel; matches the empty prefix only.
    Channel,
}

impl Operation {
    /// Returns what the operation does, for the text of an error.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Remove => "remove",
            Self::Rename => "rename",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::SyncDirectory => "sync the directory of",
            Self::Allocate => "allocate",
            Self::SetLen => "set the length of",
            Self::Punch => "punch",
            Self::Channel => "make a channel",
        }
    }
}

/// What happens to an operation that a plan strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Fails with EIO and does nothing. A failed sync makes an arbitrary part of the changes
    /// durable and forgets the rest: a later sync succeeds without them.
    Io,
    /// Fails with ENOSPC and does nothing; a sync as with [`Fault::Io`].
    Full,
    /// Fails with EACCES and does nothing.
    Denied,
    /// A read finds that the file ends after this many bytes; a write writes this many bytes and
    /// then fails with EIO. Other operations fail with EIO.
    Short(usize),
    /// Reports success and does nothing; a lost read leaves the buffer as it is.
    Lost,
    /// A read or write goes to this offset instead.
    Misdirected(u64),
    /// Happens after the thread has yielded this many times.
    Yield(u32),
    /// The machine crashes before the operation does anything.
    Crash,
    /// The machine crashes while the operation is in progress and others continue: when they have
    /// begun this many changes, or none for this many turns of the thread, or at a crash that comes
    /// first.
    CrashLater {
        /// Number of operations that may change something.
        changes: u64,
        /// Number of times that the thread yields meanwhile.
        turns: u32,
    },
}

/// A fault, and the operations that it strikes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultPlan {
    /// The operation to match.
    pub operation: Operation,
    /// Prefix of the file's name. The empty prefix matches every file.
    pub prefix: String,
    /// The first match that is struck, counted from 1.
    pub nth: u64,
    /// Also strike every later match.
    pub sticky: bool,
    /// What happens to the operation.
    pub fault: Fault,
}

impl FaultPlan {
    /// Makes a plan that strikes the `nth` (from 1) `operation` on files whose name begins with
    /// `prefix`, once.
    pub fn once(operation: Operation, prefix: &str, nth: u64, fault: Fault) -> Self {
        assert!(nth > 0, "operations are counted from 1");
        Self {
            operation,
            prefix: prefix.to_owned(),
            nth,
            sticky: false,
            fault,
        }
    }

    /// Like [`FaultPlan::once`], and also strikes every later one.
    pub fn sticky(operation: Operation, prefix: &str, nth: u64, fault: Fault) -> Self {
        Self {
            sticky: true,
            ..Self::once(operation, prefix, nth, fault)
        }
    }
}

/// Plans, and the number of matches of each.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    list: Vec<(FaultPlan, u64)>,
    /// Number of operations that were struck.
    pub(crate) struck: u64,
}

impl Plans {
    /// Adds a plan, which counts from the next operation on.
    pub(crate) fn add(&mut self, plan: FaultPlan) {
        self.list.push((plan, 0));
    }

    /// Removes all plans; `struck` stays.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    /// Removes the plans that crash.
    pub(crate) fn clear_crashes(&mut self) {
        let crashes = |fault| matches!(fault, Fault::Crash | Fault::CrashLater { .. });
        self.list.retain(|(plan, _)| !crashes(plan.fault));
    }

    /// Counts an operation and returns what happens to it.
    pub(crate) fn strike(&mut self, operation: Operation, name: &str) -> Option<Fault> {
        let mut fault = None;
        for (plan, matches) in &mut self.list {
            if plan.operation == operation && name.starts_with(plan.prefix.as_str()) {
                *matches += 1;
                let strikes = *matches == plan.nth || (plan.sticky && *matches > plan.nth);
                if strikes && fault.is_none() {
                    fault = Some(plan.fault);
                }
            }
        }
        self.struck += u64::from(fault.is_some());
        fault
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each plan counts only the operations and names that it matches.
    #[test]
    fn plans_count_what_they_match() {
        let mut plans = Plans::default();
        plans.add(FaultPlan::once(Operation::Write, "log/", 2, Fault::Io));
        plans.add(FaultPlan::sticky(Operation::Write, "", 4, Fault::Full));
        let struck: Vec<_> = ["data", "log/1", "log/2", "data", "log/3", "data"]
            .iter()
            .map(|name| plans.strike(Operation::Write, name))
            .collect();
        let full = Some(Fault::Full);
        assert_eq!(struck, [None, None, Some(Fault::Io), full, full, full]);
        assert_eq!(plans.strike(Operation::Read, "data"), None);
        assert_eq!(plans.struck, 4);
        plans.clear();
        assert_eq!(plans.strike(Operation::Write, "data"), None);
    }
}
