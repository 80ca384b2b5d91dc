//! What ends a job if the tables thread panics in it: nobody else would, and its caller, who has a
//! handle of the store, would keep that open for ever.

use crate::engine::Engine;
use crate::error::Error;
use crate::writes::jobs::Job;

/// Watches over the job that the tables thread runs.
pub(crate) struct CutOff<'a> {
    engine: &'a Engine,
    /// The running job, until it has a result or is put back.
    pub(crate) job: Option<&'a Job>,
}

impl<'a> CutOff<'a> {
    /// Returns one without a job.
    pub(crate) fn new(engine: &'a Engine) -> Self {
        Self { engine, job: None }
    }
}

impl Drop for CutOff<'_> {
    fn drop(&mut self) {
        let Some(job) = self.job else { return };
        // First: whoever is told of it finds a store that takes no writes.
        self.engine
            .poison("a change of tables was cut off by a panic");
        let cause = self.engine.store.life.cause();
        job.end(Err(Error::Poisoned { cause }));
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use std::task::Waker;

    use pando_sync::time::{self, Duration};
    use pando_sync::{Arc, thread};

    use super::*;
    use crate::event_loop::polled::Polled;
    use crate::event_loop::reactor::Reactor;
    use crate::event_loop::validated_batch::ValidatedBatch;
    use crate::writes::set::{TableChange, WriteSet};
    use crate::{Db, Table};

    /// Longer than anything takes that ends.
    const LONG: Duration = Duration::from_secs(60);

    fn open(directory: &std::path::Path) -> Db {
        let opened = Db::builder().max_memory(8 << 20).open(directory);
        opened.expect("nobody else has the store open")
    }

    /// Stands for a bug: nobody swaps a table with itself.
    fn add_panic(set: &mut WriteSet, table: &Table) {
        let index = set.table(&table.state);
        set.table_changes.push((index, TableChange::Swap(index)));
    }

    fn assert_poisoned<T: std::fmt::Debug>(result: crate::Result<T>) {
        match result {
            Err(Error::Poisoned { cause }) => assert!(cause.contains("panic"), "{cause}"),
            other => panic!("{other:?}"),
        }
    }

    /// Runs `call` in a thread, and opens the store again when all its handles are dropped.
    fn check(call: impl FnOnce(Db, Table) + Send + 'static) {
        let directory = tempfile::tempdir().expect("a directory");
        let table_of = |db: &Db| db.table("t").expect("a table");
        let db = open(directory.path());
        let table = table_of(&db);
        table.put(b"k", b"v").expect("a sound store");
        let caller = thread::spawn(move || call(db, table));
        let deadline = time::now() + LONG;
        while !caller.is_finished() {
            assert!(time::now() < deadline, "the caller waits for ever");
            thread::park_timeout(Duration::from_millis(1));
        }
        caller.join().expect("the assertions of the caller hold");
        let db = open(directory.path());
        let table = table_of(&db);
        let found = table.get(b"k").expect("the table is sound");
        assert_eq!(found.as_deref(), Some(&b"v"[..]));
        let emptied = db.clear_tables(&[&table]);
        emptied.expect("another thread changes tables now");
    }

    #[test]
    fn the_caller_of_a_job_that_panics_is_told() {
        check(|db, table| {
            let mut set = WriteSet::default();
            add_panic(&mut set, &table);
            assert_poisoned(db.end_of_job(set));
            assert_poisoned(table.put(b"k", b"w"));
            assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
            // The thread has ended, or is about to.
            let refused = db.clear_tables(&[&table]).unwrap_err();
            let is_told = matches!(refused, Error::Poisoned { .. } | Error::Closed);
            assert!(is_told, "{refused}");
        });
    }

    #[test]
    fn the_event_loop_of_a_job_that_panics_is_told() {
        check(|db, table| {
            let mut reactor = Reactor::new(&db, Waker::noop().clone()).unwrap();
            let mut batch = ValidatedBatch::new(&db);
            add_panic(&mut batch.set, &table);
            let end = loop {
                match batch.try_commit(&mut reactor) {
                    Ok(Polled::Pending(_)) => thread::yield_now(),
                    end => break end,
                }
            };
            assert_poisoned(end);
            assert!(!batch.is_committing());
        });
    }

    /// Jobs behind it end as they do when the store is closed.
    #[test]
    fn those_who_wait_behind_a_job_that_panics_are_told() {
        check(|db, table| {
            let jobs = [0; 100].map(|_| WriteSet::default()).map(|mut set| {
                let index = set.table(&table.state);
                set.change_table(index, TableChange::Drop);
                Arc::new(Job::new(set))
            });
            let mut set = WriteSet::default();
            add_panic(&mut set, &table);
            let engine = db.engine();
            engine.jobs.push(Arc::new(Job::new(set))).unwrap();
            // The others find the queue closed.
            let pushed = jobs
                .iter()
                .take_while(|job| engine.jobs.push(Arc::clone(job)).is_ok());
            for job in pushed.collect::<Vec<_>>() {
                while job.result().is_none() {
                    thread::yield_now();
                }
                job.result().unwrap().unwrap_err();
            }
        });
    }
}
