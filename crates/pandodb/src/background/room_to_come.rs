//! Room that is on its way: who needs blocks or page ids waits for it, and is not refused meanwhile
//! (decision 133).
//!
//! Garbage is freed some time after the commit that makes it, underfull leaves some time after the
//! deletes, and what was freed can be used behind the next checkpoint. So there is room to come
//! while the maintenance thread has empty leaves or garbage that it can free, and until a
//! checkpoint has finished that began after something was freed or deleted. The wait ends: garbage
//! that waits for a reader or a snapshot does not count, and neither do deletes of keys that are
//! not there.

use pando_stats::Ticker;

use crate::engine::Engine;

impl Engine {
    /// Returns true if the disk is full, no room is on its way, and no snapshot could be ended for
    /// it: then a commit is refused for which there are no blocks, unless it deletes.
    pub(crate) fn is_disk_full(&self) -> bool {
        let is_full = || self.store.space.is_full();
        // Looked at again: room may have come since the caller found none, and until the second
        // look.
        is_full() && !self.await_room() && is_full() && !self.end_keeping_snapshot()
    }

    /// Returns true while room comes if one only waits, and a checkpoint is made.
    pub(crate) fn room_comes(&self) -> bool {
        // In this order: if no leaf or garbage is left to free, all that was freed is noted.
        self.may_make_room()
            && (self.underfull_leaves.is_looked_at()
                || self.is_garbage_freed()
                || self.store.freed_room.comes())
    }

    /// Returns true while garbage is being freed. Has it looked at again if a snapshot has ended
    /// that some of it was kept for: the maintenance thread notices that a moment later.
    fn is_garbage_freed(&self) -> bool {
        let registry = &self.store.registry;
        if registry.keeps_too_much(self.horizon()) && !registry.is_freeing() {
            registry.note_garbage();
        }
        registry.is_freeing()
    }

    /// As [`Engine::room_comes`], for somebody who needs it now: asks for the checkpoint that gives
    /// back what was freed.
    pub(crate) fn await_room(&self) -> bool {
        let comes = self.room_comes();
        if comes && self.store.freed_room.awaits_begin() && !self.checkpoint.is_wanted() {
            self.checkpoint.request();
        }
        comes
    }

    /// Ends the oldest snapshot in memory if garbage waits for snapshots, unless the options keep
    /// it. Returns true if there was one: then garbage may be freed, and room comes.
    pub(crate) fn end_keeping_snapshot(&self) -> bool {
        let keeps = self.options.keep_settled_snapshots || !self.store.registry.keeps_rows();
        if keeps || !self.may_make_room() {
            return false;
        }
        let Some(lsn) = self.old_versions.snapshots.end_oldest() else {
            return false;
        };
        tracing::warn!(%lsn, "a snapshot was ended: the store has no room for what it keeps");
        self.store.statistics.tick(Ticker::SnapshotsEnded, 1);
        self.store.registry.note_garbage();
        true
    }

    /// Returns true if garbage can be freed, and checkpoints made.
    fn may_make_room(&self) -> bool {
        let life = &self.store.life;
        let is_stuck = life.is_short() || life.is_checkpoint_stalled() || life.is_ended();
        !is_stuck && self.store.check_poison().is_ok()
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use pando_device::MemoryDevice;
    use pando_sync::thread;
    use pando_tree::LeafFill;

    use crate::space::id_turns::IdWait;
    use crate::wait::reason::{Unfinished, WaitReason};
    use crate::{Batch, Db, WriteOptions};

    fn store() -> Db {
        let options = Db::builder()
            .max_memory(16 << 20)
            .keep_settled_snapshots(true);
        Db::open_device(options, MemoryDevice::new(1 << 30).into()).expect("it opens")
    }

    /// Who wants more page ids than are left waits as long as garbage is being freed, before the
    /// first piece of it is, and as long as no checkpoint has given back what was.
    #[test]
    fn page_ids_are_waited_for_from_the_first_to_the_last_piece() {
        let db = store();
        let (engine, table) = (db.engine(), db.table("t").unwrap());
        table.put(b"key", b"value").unwrap();
        while engine.room_comes() {
            // The store has looked for garbage when it was opened.
            db.checkpoint().unwrap();
        }
        let more = engine.store.pool.page_ids().available() + 1;
        let reserve = || {
            let mut wait = IdWait::default();
            engine
                .reserve_page_ids((0, more), false, &mut wait)
                .map(drop)
        };
        let waits = || matches!(reserve(), Err(Unfinished::Wait(WaitReason::Checkpoint(_))));
        let is_refused = || matches!(reserve(), Err(Unfinished::Error(_)));
        assert!(is_refused());
        let snapshot = db.snapshot().unwrap();
        db.clear_tables(&[&table]).unwrap();
        while engine.store.registry.is_wanted() || !engine.store.registry.keeps_rows() {
            thread::yield_now();
        }
        assert!(is_refused(), "a snapshot keeps it");
        // No checkpoint begins, and nothing is freed before the gate is opened.
        let files = engine.checkpoint.lock_files();
        let closed = engine.store.close_gate();
        // The maintenance thread notices nothing before the lock is given back.
        engine.store.space.without_growth(|| {
            drop(snapshot);
            assert!(waits(), "at once");
        });
        drop(closed);
        while engine.store.registry.is_freeing() {
            thread::yield_now();
        }
        assert!(waits());
        drop(files);
        db.checkpoint().unwrap();
        assert!(is_refused());
    }

    /// Leaves that are about to be looked at may make room.
    #[test]
    fn empty_leaves_are_waited_for() {
        let db = store();
        let (engine, table) = (db.engine(), db.table("t").unwrap());
        table.put(b"key", b"value").unwrap();
        while engine.room_comes() {
            db.checkpoint().unwrap();
        }
        let tree = *engine.store.tables.trees().last().unwrap();
        let leaves = &engine.underfull_leaves;
        // Nothing is removed before the gate is opened; whether the note is taken or not.
        let closed = engine.store.close_gate();
        assert!(!leaves.push(tree, b"key", LeafFill::Underfull));
        assert!(!engine.room_comes(), "nobody looks at it");
        assert!(leaves.pop().is_some());
        leaves.rest();
        assert!(leaves.push(tree, b"key", LeafFill::Empty));
        engine.store.space.growth.notify_all();
        while leaves.due_in().is_some() {
            assert!(engine.room_comes(), "before the thread looks");
            thread::yield_now();
        }
        assert!(engine.room_comes(), "while it looks");
        drop(closed);
        while engine.room_comes() {
            thread::yield_now();
        }
        assert_eq!(leaves.due_in(), None);
    }

    /// Whoever needs room after a delete waits for a checkpoint, and only for one.
    #[test]
    fn a_delete_is_followed_by_a_checkpoint() {
        let db = store();
        let (engine, table) = (db.engine(), db.table("t").unwrap());
        for key in [b"1", b"2"] {
            table.put(key, b"value").unwrap();
        }
        while engine.room_comes() {
            db.checkpoint().unwrap();
        }
        table.put(b"3", b"value").unwrap();
        let mut absent = Batch::new();
        for key in [b"4", b"5"] {
            absent.delete(&table, key);
        }
        db.write(&mut absent, WriteOptions::default()).unwrap();
        assert!(!engine.room_comes(), "neither has made any");
        table.delete(b"1").unwrap();
        let files = engine.checkpoint.lock_files();
        assert!(engine.room_comes() && engine.room_comes());
        drop(files);
        db.checkpoint().unwrap();
        assert!(!engine.room_comes());
    }
}
