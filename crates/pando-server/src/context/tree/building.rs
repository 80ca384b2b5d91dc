//! New collections whose rows are too many for a batch: a thread writes them in many, and the
//! command then writes the head that names them, which is one small commit (decision 126).
//!
//! A command that is run again makes the same collections in the same order. Rows that were written
//! are kept while what they are made of stays the same, also across conflicts.

use pando_sync::atomic::AtomicBool;
use pando_sync::{Arc, OnceLock};
use pandodb::Table;
use pandodb::nonblocking::Polled;

use super::builds::Build;
use super::changes::nothing_of;
use crate::context::collection::Collection;
use crate::context::job::{self, Job};
use crate::context::{Context, Interrupted, Run};
use crate::data::combination::Merged;
use crate::data::elements::given_up_key;
use crate::data::keyspace::ValueType;
use crate::data::new_rows::{self, NewRows};
use crate::data::tree_head::TreeHead;

/// Bytes of a batch for a row of an element, besides the element, about.
const ROW_BYTES: usize = 40;

impl Context<'_> {
    /// Returns true if the rows of a new collection may be too many for a batch, or would hold the
    /// loop for long. False in a transaction of PANDO BEGIN: it would not see rows that were
    /// written since it began.
    pub(super) fn is_to_be_built(&mut self, collection: &Collection) -> bool {
        let batch = self.data().batch.as_deref_mut();
        if batch.is_none_or(|batch| batch.transaction().is_some()) {
            return false;
        }
        let elements = collection.in_memory();
        let rows = match collection.value_type {
            ValueType::SortedSet => elements * 2,
            _ => elements,
        };
        self.is_long_batch(rows, collection.strings.bytes())
    }

    /// Returns true if so many rows, with keys and values of so many bytes, may be too many for a
    /// batch, or would hold the loop for long.
    pub(super) fn is_long_batch(&self, rows: usize, bytes: usize) -> bool {
        bytes + rows * ROW_BYTES > self.engine().row_bytes_max / 2
    }

    /// Has the rows of a new collection written, and makes it that of `key`.
    pub(super) fn put_built(
        &mut self,
        (key, members): (&[u8], &Table),
        collection: &Collection,
    ) -> Run {
        let elements = (&collection.strings, &collection.deadlines);
        let value_type = collection.value_type;
        let hash = self.progress.builds.hash_of(value_type, elements);
        let (head, _) = self.built(members, (value_type, hash), |context, id| {
            let loaded = nothing_of(members, collection, id);
            let mut head = loaded.head;
            context.progress.builds.rows = Some(Box::default());
            let made = context.put_rows((value_type, &mut head), &loaded, elements);
            let rows = context.progress.builds.rows.take();
            made?;
            let rows = rows.expect("the rows were put there");
            Ok((head, rows as Box<dyn NewRows>))
        })?;
        self.put_new_head((key, collection), &head, collection.found.former)
    }

    /// Returns the head of a collection whose rows were written, and that counts as given up no
    /// more, and what was learnt meanwhile. `begin` returns them for its id, and its head; what it
    /// returns depends on `identity` alone, a type and a hash.
    pub(super) fn built(
        &mut self,
        members: &Table,
        (value_type, hash): (ValueType, u64),
        begin: impl FnOnce(&mut Self, u64) -> Result<(TreeHead, Box<dyn NewRows>), Interrupted>,
    ) -> Result<(TreeHead, Arc<OnceLock<Merged>>), Interrupted> {
        if self.is_together {
            return Err(Interrupted::Yield);
        }
        let identity = (self.session.database, value_type, hash);
        let builds = &mut self.progress.builds;
        let place = builds.next;
        builds.next += 1;
        if builds
            .list
            .get(place)
            .is_none_or(|build| build.identity != identity)
        {
            // Those behind it were made in a run that has read something else.
            builds.list.truncate(place);
            let build = self.begin_build(members, identity, begin)?;
            self.progress.builds.list.push(build);
        }
        let build = &self.progress.builds.list[place];
        let (head, merged) = (build.head, build.merged.clone());
        let result = build.job.result(self.waker);
        match result {
            None => return Err(Interrupted::Wait),
            Some(Ok(())) => {}
            Some(Err(text)) => {
                self.progress.builds.list.truncate(place);
                return Err(format!("ERR {text}").into());
            }
        }
        let mut given_up = Vec::new();
        given_up_key(head.id, &mut given_up);
        match self.source().get(members, &given_up, &mut Vec::new())? {
            Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
            Polled::Ready(true) => {}
            Polled::Ready(false) => {
                // The database was emptied meanwhile, or has changed places with another one.
                self.progress.builds.list.truncate(place);
                return Err(Interrupted::Yield);
            }
        }
        self.batch()?.delete(members, &given_up);
        Ok((head, merged))
    }

    /// Has a thread write the rows of a new collection.
    fn begin_build(
        &mut self,
        members: &Table,
        identity: (usize, ValueType, u64),
        begin: impl FnOnce(&mut Self, u64) -> Result<(TreeHead, Box<dyn NewRows>), Interrupted>,
    ) -> Result<Build, Interrupted> {
        let database = self.database();
        let ticket = self.progress.builds.ticket.take();
        let ticket = ticket.unwrap_or_else(|| database.members.slots().ticket(self.waker));
        if !ticket.is_slot(self.waker) {
            self.progress.builds.ticket = Some(ticket);
            return Err(Interrupted::Wait);
        }
        let lease = Arc::new(database.members.lease());
        let (head, mut rows) = begin(self, lease.id())?;
        let engine = self.shared.engine();
        let engine = engine.expect("commands with data run when the engine is open");
        let (job, end) = Job::new(self.waker.clone());
        let is_wanted = Arc::new(AtomicBool::new(true));
        let build = Build {
            identity,
            head,
            job,
            merged: Arc::default(),
            is_wanted: is_wanted.clone(),
            _lease: lease.clone(),
        };
        let (members, merged) = (members.clone(), build.merged.clone());
        let scratch = self.shared.scratch_of_rows.clone();
        let started = job::start("pando-write-rows", move || {
            let of = (&members, lease.id());
            let written = new_rows::write(&mut *rows, (&engine.db, scratch), of, &is_wanted);
            if let Some(known) = rows.merged() {
                let _first = merged.set(known);
            }
            drop((rows, members, lease, ticket));
            drop(engine);
            end.finish(written);
        });
        match started {
            Ok(()) => Ok(build),
            Err(text) => Err(format!("ERR {text}").into()),
        }
    }
}
