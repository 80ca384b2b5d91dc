//! The files of checkpoints, locked: a panic of whoever has them poisons the store before anybody
//! else gets them. Else the next checkpoint would go on with what the one that was cut off has
//! begun, and without what it has taken: the places of pages, for instance, which it has not
//! written anywhere.

use std::ops::{Deref, DerefMut};

use pando_sync::{MutexGuard, thread};

use crate::engine::Engine;
use crate::state::checkpoint::Files;

/// The files, until it is dropped.
pub(crate) struct LockedFiles<'a> {
    engine: &'a Engine,
    files: MutexGuard<'a, Files>,
    /// It was taken by a destructor, while its thread unwound already.
    was_panicking: bool,
}

impl Engine {
    /// Locks the files that a checkpoint changes. Blocks while one runs.
    pub(crate) fn lock_files(&self) -> LockedFiles<'_> {
        LockedFiles {
            engine: self,
            files: self.checkpoint.lock_files(),
            was_panicking: thread::panicking(),
        }
    }
}

impl Deref for LockedFiles<'_> {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.files
    }
}

impl DerefMut for LockedFiles<'_> {
    fn deref_mut(&mut self) -> &mut Files {
        &mut self.files
    }
}

impl Drop for LockedFiles<'_> {
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking {
            self.engine.poison("a checkpoint was cut off by a panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::task::{Wake, Waker};

    use pando_format::Epoch;
    use pando_sync::Arc;
    use pando_sync::atomic::{AtomicU32, Ordering};

    use crate::{Db, Error};

    /// Makes the next checkpoint panic behind its cut: generations grow.
    fn plant(db: &Db) {
        let mut files = db.engine().checkpoint.lock_files();
        files.superblock.generation = Epoch(1 << 60);
    }

    fn open(directory: &std::path::Path) -> Db {
        let options = Db::builder().max_memory(8 << 20);
        options.open(directory).expect("nobody else has it open")
    }

    /// Tells whether the files were locked when the store was poisoned.
    struct Look(Db, AtomicU32);

    impl Wake for Look {
        fn wake(self: Arc<Self>) {
            let engine = self.0.engine();
            assert!(engine.store.life.is_poisoned(), "that is what wakes");
            let locked = engine.checkpoint.are_files_locked();
            self.1.store(1 + u32::from(locked), Ordering::SeqCst);
        }
    }

    #[test]
    fn a_checkpoint_that_panics_poisons_before_another_one_begins() {
        let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        table.put(b"k", b"v").unwrap();
        let look = Arc::new(Look(db.clone(), AtomicU32::new(0)));
        let waiters = db.engine().store.pool.frame_waiters();
        waiters.register(&Waker::from(look.clone()));
        plant(&db);
        let checkpoint = || db.engine().checkpoint_once();
        catch_unwind(AssertUnwindSafe(checkpoint)).expect_err("planted");
        let seen = look.1.load(Ordering::SeqCst);
        assert_eq!(seen, 2, "0: nobody was woken; 1: the files were free");
        match checkpoint() {
            Err(Error::Poisoned { cause }) => assert!(cause.contains("cut off"), "{cause}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
    }

    /// Its threads end, and so does its claim to the directory.
    #[test]
    fn a_store_whose_close_panics_can_be_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path());
        db.table("t").unwrap().put(b"k", b"v").unwrap();
        plant(&db);
        catch_unwind(AssertUnwindSafe(|| db.close())).expect_err("planted");
        let db = open(directory.path());
        assert_eq!(db.table("t").unwrap().get(b"k").unwrap().unwrap(), b"v");
        db.close().unwrap();
    }

    /// A destructor that closes a store while its thread unwinds closes a sound one.
    #[test]
    fn a_store_that_is_dropped_by_a_panic_is_closed_as_usual() {
        let directory = tempfile::tempdir().unwrap();
        let drop_by_panic = || {
            let db = open(directory.path());
            db.table("t").unwrap().put(b"k", b"v").unwrap();
            panic!("with the store in hand");
        };
        catch_unwind(AssertUnwindSafe(drop_by_panic)).expect_err("a panic");
        let db = open(directory.path());
        assert_eq!(
            db.engine().recovered.batches,
            0,
            "it was closed by a checkpoint"
        );
        assert_eq!(db.table("t").unwrap().get(b"k").unwrap().unwrap(), b"v");
    }
}
