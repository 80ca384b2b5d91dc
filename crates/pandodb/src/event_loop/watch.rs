//! Keys that are watched from outside of any batch, until a batch depends on them.
//!
//! A key that exists is gone when its table is emptied: that is a change. One that did not exist
//! still does not, so an emptying of its table is none; what has been written to the table since
//! is. Emptying gives the table another tree, in which keys have other stripes. Three things say
//! that a key was not written all along:
//!
//! - The stamp of its stripe in the tree that the table had then is the same: nobody wrote it until
//!   the table was emptied.
//! - In each later tree its stripe was not written by a batch behind [`Watch::applied`]. Whoever
//!   writes such a tree has a later LSN than the batch that made it. That one was not applied when
//!   the watch found the older tree, which it did after it had noted what was applied.
//! - The batch depends on all these stamps, and on the tree that the table has now: until it has
//!   its LSN nobody writes the key.

use pando_format::{Lsn, TreeId};
use pando_sync::Arc;
use pando_tree::Tree;

use crate::api::table::Table;
use crate::engine::Engine;
use crate::event_loop::polled::{Pending, Polled};
use crate::event_loop::validated_batch::ValidatedBatch;
use crate::tables::state::TableState;
use crate::wait::reason::WaitReason;
use crate::writes::stripes::{Stamp, StripeIndex, StripeUse};

/// The state of a key when [`ValidatedBatch::watch`] was called.
#[derive(Debug, Clone)]
pub struct Watch {
    state: Arc<TableState>,
    tree: Option<Tree>,
    pub(crate) stamp: Stamp,
    /// Up to here all was applied before the tree was looked at.
    applied: Lsn,
}

/// The place that a watch observes. A change of any key of the place is a change to all watches of
/// the place, so the oldest of them can stand for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatchPlace {
    /// Address of the table's state, which the watch keeps alive.
    table: usize,
    tree: Option<TreeId>,
    stripe: StripeIndex,
}

impl Watch {
    /// Returns the place that it observes.
    pub fn place(&self) -> WatchPlace {
        WatchPlace {
            table: std::ptr::from_ref::<TableState>(&self.state).addr(),
            tree: self.tree.map(|tree| tree.id),
            stripe: self.stamp.stripe,
        }
    }

    /// Returns the stamps in the trees that the table has got since; None if that cannot be known,
    /// or if one was written.
    fn later(&self, engine: &Engine) -> Option<Result<Vec<Stamp>, StripeIndex>> {
        let old = self.tree?;
        let trees = engine.store.tables.trees_behind(old.id)?;
        let mut stamps = Vec::with_capacity(trees.len());
        for tree in trees {
            let stripe = turned(engine, self.stamp.stripe, old.id, tree);
            match engine.stripes.stamp(stripe) {
                Some(stamp) if stamp.lsn() > self.applied => return None,
                Some(stamp) => stamps.push(stamp),
                None => return Some(Err(stripe)),
            }
        }
        Some(Ok(stamps))
    }
}

/// Returns the stripe on which the keys of `stripe` of the tree `from` lie in the tree `to`.
///
/// A tree turns the stripes of all keys by its id times an odd number. So each stripe is that of
/// the empty key in some tree, whose id is found bit by bit: an odd number of times 2^n changes bit
/// n, and none below it.
fn turned(engine: &Engine, stripe: StripeIndex, from: TreeId, to: TreeId) -> StripeIndex {
    let of_empty = |id: u32| engine.stripes.of(TreeId(id), b"");
    let mut id = 0;
    for bit in 0..u32::BITS {
        let differs = of_empty(id).number() ^ stripe.number();
        if differs == 0 {
            break;
        }
        id |= differs & (1 << bit);
    }
    assert_eq!(of_empty(id), stripe, "trees turn stripes");
    of_empty(id.wrapping_add(to.0).wrapping_sub(from.0))
}

impl ValidatedBatch {
    /// Takes the state of `key` as it is now, for [`ValidatedBatch::expect`].
    pub fn watch(&mut self, table: &Table, key: &[u8]) -> Polled<Watch> {
        let engine = &self.engine;
        let applied = engine.log.applied();
        let tree = table.state.tree();
        let id = tree.map(|tree| tree.id).unwrap_or_default();
        let stripe = engine.stripes.of(id, key);
        match engine.stripes.stamp(stripe) {
            Some(stamp) => Polled::Ready(Watch {
                state: table.state.clone(),
                tree,
                stamp,
                applied,
            }),
            None => Polled::Pending(written(stripe)),
        }
    }

    /// Makes the commit depend on the watched key: it succeeds only if the key was not written
    /// since, and its table not emptied.
    ///
    /// # Panics
    /// If it is a step of a transaction.
    pub fn expect(&mut self, watch: &Watch) {
        assert!(self.within.is_none(), "a transaction watches nothing");
        self.expect_stamp(watch, watch.tree, watch.stamp);
    }

    /// As [`ValidatedBatch::expect`], of a key that did not exist: that its table was emptied is no
    /// change. After very many emptyings it is one, since they are not all remembered.
    ///
    /// # Panics
    /// If it is a step of a transaction.
    pub fn expect_absent(&mut self, watch: &Watch) -> Polled<()> {
        let now = watch.state.tree();
        if now == watch.tree {
            self.expect(watch);
            return Polled::Ready(());
        }
        match watch.later(&self.engine) {
            Some(Ok(stamps)) => {
                assert!(self.within.is_none(), "a transaction watches nothing");
                // If the table has changed again, the batch finds another tree than this one.
                self.expect_stamp(watch, now, watch.stamp);
                for stamp in stamps {
                    self.expect_stamp(watch, now, stamp);
                }
                Polled::Ready(())
            }
            Some(Err(stripe)) => Polled::Pending(written(stripe)),
            None => {
                self.expect(watch);
                Polled::Ready(())
            }
        }
    }

    fn expect_stamp(&mut self, watch: &Watch, tree: Option<Tree>, stamp: Stamp) {
        self.set.watched.push((watch.state.clone(), tree, stamp));
    }
}

/// What to wait for while a commit writes the stripe.
fn written(stripe: StripeIndex) -> Pending {
    Pending {
        reason: WaitReason::Stripe(stripe, StripeUse::Read),
        wanted: Vec::new(),
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use std::task::Waker;

    use pando_sync::thread;

    use super::*;
    use crate::api::db::Db;
    use crate::commit::outcome::Outcome;
    use crate::event_loop::reactor::Reactor;

    const KEY: &[u8] = b"key";

    fn open() -> (Db, Table) {
        let db = Db::builder().max_memory(8 << 20).open_in_memory();
        let db = db.expect("a store in memory");
        let table = db.table("watched").expect("a table");
        (db, table)
    }

    fn watch(table: &Table, key: &[u8]) -> Watch {
        match ValidatedBatch::new(table.db()).watch(table, key) {
            Polled::Ready(watch) => watch,
            Polled::Pending(_) => panic!("nobody writes the key"),
        }
    }

    fn commits(batch: &mut ValidatedBatch, db: &Db) -> bool {
        let reactor = Reactor::new(db, Waker::noop().clone());
        let mut reactor = reactor.expect("a reactor");
        loop {
            match batch.try_commit(&mut reactor).expect("nothing fails") {
                Polled::Ready(Outcome::Committed(_)) => return true,
                Polled::Ready(outcome) => {
                    assert_eq!(outcome, Outcome::Conflict { watched: true });
                    return false;
                }
                Polled::Pending(_) => thread::yield_now(),
            }
        }
    }

    /// Returns a batch that writes something, and depends on the absence of the key.
    fn dependent(watch: &Watch, table: &Table) -> ValidatedBatch {
        let mut batch = ValidatedBatch::new(table.db());
        let expected = batch.expect_absent(watch);
        assert!(matches!(expected, Polled::Ready(())), "{expected:?}");
        let put = batch.put(table, b"result", b"");
        put.expect("it is short");
        batch
    }

    /// e: the table is emptied, p: the key is put, d: it is deleted, o: another key is put.
    fn apply(steps: &str, db: &Db, table: &Table, other: &[u8]) {
        for step in steps.chars() {
            match step {
                'e' => db.clear_tables(&[table]),
                'p' => table.put(KEY, b"v"),
                'd' => table.delete(KEY).map(|_| ()),
                _ => table.put(other, b"v"),
            }
            .expect("nothing fails");
        }
    }

    #[test]
    fn an_absent_key_stays_unchanged_when_its_table_is_emptied_and_not_when_it_was_written() {
        let cases = [
            ("", true),
            ("o", true),
            ("e", true),
            ("eee", true),
            ("oeoeo", true),
            ("p", false),
            ("pd", false),
            ("pe", false),
            ("pde", false),
            ("ep", false),
            ("epd", false),
            ("epe", false),
            ("eepdee", false),
        ];
        for (steps, expected) in cases {
            let (db, table) = open();
            let engine = db.engine();
            let tree = table.state.tree().unwrap().id;
            let own = engine.stripes.of(tree, KEY);
            let differs = |key: &Vec<u8>| engine.stripes.of(tree, key) != own;
            let mut keys = (0_u8..).map(|number| vec![b'o', number]);
            let other = keys.find(differs).unwrap();
            // A store that has been written: stamps are not the first ones.
            apply("pdo", &db, &table, &other);
            let watched = watch(&table, KEY);
            apply(steps, &db, &table, &other);
            let mut batch = dependent(&watched, &table);
            assert_eq!(commits(&mut batch, &db), expected, "{steps}");
            // One that existed is gone.
            let mut batch = ValidatedBatch::new(&db);
            batch.expect(&watched);
            batch.put(&table, b"result", b"").unwrap();
            let kept = !steps.contains(['p', 'e']);
            assert_eq!(commits(&mut batch, &db), kept, "{steps}");
        }
    }

    #[test]
    fn what_happens_to_an_absent_key_before_the_commit_counts() {
        for (before, after) in [("", "p"), ("e", "p"), ("ee", "e"), ("", "e"), ("e", "pd")] {
            let (db, table) = open();
            let watched = watch(&table, KEY);
            apply(before, &db, &table, b"");
            let mut batch = dependent(&watched, &table);
            apply(after, &db, &table, b"");
            assert!(!commits(&mut batch, &db), "{before} {after}");
        }
    }

    #[test]
    fn a_stripe_is_turned_as_the_stripes_of_keys_are() {
        let (db, _) = open();
        let engine = db.engine();
        for (from, to) in [(7, 8), (8, 7), (1, 70_000), (u32::MAX, 3), (5, 5)] {
            for key in 0..100_u32 {
                let key = key.to_be_bytes();
                let [old, new] = [from, to].map(|id| engine.stripes.of(TreeId(id), &key));
                assert_eq!(turned(engine, old, TreeId(from), TreeId(to)), new);
            }
        }
    }
}
