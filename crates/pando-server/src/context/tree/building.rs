//! New collections whose rows are too many for a batch: a thread writes them in many, and the
//! command then writes the head that names them, which is one small commit (decision 126).
//!
//! A command that is run again makes the same collections in the same order. Rows that were written
//! are kept while what they are made of stays the same, also across conflicts.

use pando_sync::atomic::AtomicBool;
use pando_sync::{Arc, thread};
use pandodb::Table;
use pandodb::nonblocking::Polled;

use super::builds::Build;
use super::changes::nothing_of;
use crate::context::collection::Collection;
use crate::context::job::Job;
use crate::context::{Context, Interrupted, Run};
use crate::data::elements::given_up_key;
use crate::data::keyspace::ValueType;

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
        collection.strings.bytes() + rows * ROW_BYTES > self.engine().row_bytes_max / 2
    }

    /// Has the rows of a new collection written, and makes it that of `key`.
    pub(super) fn put_built(
        &mut self,
        (key, members): (&[u8], &Table),
        collection: &Collection,
    ) -> Run {
        if self.is_together {
            return Err(Interrupted::Yield);
        }
        let value_type = collection.value_type;
        let elements = (&collection.strings, &collection.deadlines);
        let hash = self.progress.builds.hash_of(value_type, elements);
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
            let build = self.begin_build(members, collection, identity)?;
            self.progress.builds.list.push(build);
        }
        let build = &self.progress.builds.list[place];
        let (head, result) = (build.head, build.job.result(self.waker));
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
        self.put_new_head((key, collection), &head, collection.found.former)
    }

    /// Makes the rows of a new collection, and has a thread write them.
    fn begin_build(
        &mut self,
        members: &Table,
        collection: &Collection,
        identity: (usize, ValueType, u64),
    ) -> Result<Build, Interrupted> {
        let database = self.database();
        let ticket = self.progress.builds.ticket.take();
        let ticket = ticket.unwrap_or_else(|| database.members.slots().ticket(self.waker));
        if !ticket.is_slot(self.waker) {
            self.progress.builds.ticket = Some(ticket);
            return Err(Interrupted::Wait);
        }
        let lease = Arc::new(database.members.lease());
        let loaded = nothing_of(members, collection, lease.id());
        let mut head = loaded.head;
        self.progress.builds.rows = Some(Box::default());
        let of = (collection.value_type, &mut head);
        let made = self.put_rows(of, &loaded, (&collection.strings, &collection.deadlines));
        let rows = self.progress.builds.rows.take();
        made?;
        let rows = rows.expect("the rows were put there");
        let engine = self.shared.engine();
        let engine = engine.expect("commands with data run when the engine is open");
        let (job, end) = Job::new(self.waker.clone());
        let is_wanted = Arc::new(AtomicBool::new(true));
        let build = Build {
            identity,
            head,
            job,
            is_wanted: is_wanted.clone(),
            _lease: lease.clone(),
        };
        let members = members.clone();
        let spawned = thread::Builder::new()
            .name("pando-write-rows".to_owned())
            .spawn(move || {
                let written = rows.write(&engine.db, (&members, head.id), &is_wanted);
                drop((rows, members, lease, ticket));
                drop(engine);
                end.finish(written.map_err(|error| error.to_string()));
            });
        match spawned {
            Ok(_) => Ok(build),
            Err(error) => Err(format!("ERR {error}").into()),
        }
    }
}
