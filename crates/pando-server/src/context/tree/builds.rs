//! What a command keeps of the new collections whose rows are written before their heads.

use std::hash::{BuildHasher as _, DefaultHasher, Hasher as _, RandomState};

use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::{Arc, OnceLock};

use crate::context::job::Job;
use crate::data::combination::Merged;
use crate::data::deadlines::Deadlines;
use crate::data::keyspace::ValueType;
use crate::data::members::Lease;
use crate::data::new_rows::MadeRows;
use crate::data::packed::{Strings, strings_of_one};
use crate::data::slots::Ticket;
use crate::data::tree_head::TreeHead;

/// Collections that the running command makes.
#[derive(Debug, Default)]
pub(crate) struct Builds {
    pub(super) list: Vec<Build>,
    /// Index of the next one that this run asks for.
    pub(super) next: usize,
    /// The slot for the next one, or what waits for it.
    pub(super) ticket: Option<Ticket>,
    /// How many were made whose moment was lost.
    pub(super) lost: u32,
    hashes: RandomState,
    /// Where rows go that are being made, instead of into the batch.
    pub(super) rows: Option<Box<MadeRows>>,
}

/// A collection whose rows are written, or are being written. If it is dropped before a head names
/// them, the cleaner removes them.
#[derive(Debug)]
pub(super) struct Build {
    /// Database and type, and a hash of all that the rows depend on.
    pub(super) identity: (usize, ValueType, u64),
    pub(super) head: TreeHead,
    pub(super) job: Arc<Job>,
    /// What was learnt of it while the rows were made; set before the job ends.
    pub(super) merged: Arc<OnceLock<Merged>>,
    pub(super) is_wanted: Arc<AtomicBool>,
    /// Until the command has ended, the cleaner spares it.
    pub(super) _lease: Arc<Lease>,
}

impl Drop for Build {
    fn drop(&mut self) {
        // Relaxed: nothing is told by it.
        self.is_wanted.store(false, Ordering::Relaxed);
    }
}

impl Builds {
    /// True if no run of the command has asked for one.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.ticket.is_none()
    }

    /// Begins another run of the command.
    #[inline]
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
        self.rows = None;
    }

    /// Forgets the last one that this run has asked for, so that the next run has it made anew.
    pub(super) fn forget_last(&mut self) {
        self.next -= 1;
        self.list.truncate(self.next);
    }

    /// Returns the place of the next one, for [`Builds::rewind_to`].
    #[cfg(feature = "scripts")]
    pub(crate) fn place(&self) -> usize {
        self.next
    }

    /// As [`Builds::rewind`], for a run that goes on at `place`.
    #[cfg(feature = "scripts")]
    pub(crate) fn rewind_to(&mut self, place: usize) {
        self.next = place;
    }

    /// Returns true if an earlier run has begun the next one, and it is this.
    pub(super) fn has_begun(&self, identity: (usize, ValueType, u64)) -> bool {
        let next = self.list.get(self.next);
        next.is_some_and(|build| build.identity == identity)
    }

    /// Returns a hasher for what rows are made of.
    pub(super) fn hasher(&self) -> DefaultHasher {
        self.hashes.build_hasher()
    }

    /// Returns a hash of the elements of a collection, and of the deadlines of its fields.
    pub(super) fn hash_of(
        &self,
        value_type: ValueType,
        (strings, deadlines): (&Strings, &Deadlines),
    ) -> u64 {
        let mut hasher = self.hasher();
        let of_one = strings_of_one(value_type);
        for (place, string) in strings.iter().enumerate() {
            hasher.write_usize(string.len());
            hasher.write(string);
            if place % of_one == 0 && !deadlines.is_empty() {
                hasher.write_u64(deadlines.of(string).unwrap_or(u64::MAX));
            }
        }
        hasher.finish()
    }
}
