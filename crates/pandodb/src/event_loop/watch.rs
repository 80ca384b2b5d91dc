//! Keys that are watched from outside of any batch, until a batch depends on them.
//!
//! A key that exists is gone when its table is emptied: that is a change. One that did not exist
//! still does not, so an emptying of its table is none; what has been written to the table since
//! is. Emptying gives the table another tree, in which keys have other stripes. Three things say
//! that a key was not written all along:
//!
//! - The stamp of its stripe in the tree that the table had then is the same: nobody wrote it
//!   until the table was emptied. A tree that is gone is written no more, and who wrote it had
//!   stamped its stripes when the gate was closed to replace it. So it is enough to look once.
//! - In each later tree its stripe was not written by a batch behind [`Watch::applied`]. What is
//!   not behind it was applied before the watch returned, and before anybody asked whether the key
//!   exists: it belongs to what was watched. For the trees that are gone again, one look is enough.
//! - The batch depends on the stamp in the tree that the table has now, and on that tree: until it
//!   has its LSN nobody writes the key. If only the tree is another one, the batch runs again, and
//!   looks again.
//!
//! A swap gives the table a content of its own history, in which nobody has looked for the key, so
//! it is a change of all keys that are watched in the table, whether they exist or not.
//!
//! Stripes are shared: each tree between adds one that anybody's write turns. That is a change too
//! many, never one too few.

use pando_format::{Lsn, TreeId};
use pando_sync::Arc;
use pando_tree::Tree;

use crate::api::table::Table;
use crate::engine::Engine;
use crate::event_loop::polled::{Pending, Polled};
use crate::event_loop::validated_batch::ValidatedBatch;
use crate::tables::state::{NotedTree, TableState};
use crate::wait::reason::WaitReason;
use crate::writes::stripes::{Stamp, StripeIndex, StripeUse, Stripes};
use crate::writes::watched::WatchedKey;

/// The state of a key when [`ValidatedBatch::watch`] was called.
#[derive(Debug, Clone)]
pub struct Watch {
    state: Arc<TableState>,
    noted: NotedTree,
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
            tree: self.noted.tree.map(|tree| tree.id),
            stripe: self.stamp.stripe,
        }
    }
}

/// What became of a key that did not exist, in a table that was emptied since.
enum Fate {
    /// Nobody has written it, up to this stamp in this tree.
    Absent(Tree, Stamp),
    /// It may have been written.
    Changed,
    /// Somebody writes this stripe of the tree that the table has.
    Written(StripeIndex),
}

/// Returns the tree in which the empty key lies on `stripe`.
///
/// A tree turns the stripes of all keys by its id times an odd number. So each stripe is that of
/// the empty key in some tree, whose id is found bit by bit: an odd number of times 2^n changes bit
/// n, and none below it.
fn tree_of_empty(engine: &Engine, stripe: StripeIndex) -> TreeId {
    let is_counted = Stripes::is_of_counted(stripe);
    let of_empty = |number: u32| engine.stripes.of(of_kind(number, is_counted), b"");
    let mut number = 0;
    for bit in 0..u32::BITS {
        let differs = of_empty(number).number() ^ stripe.number();
        if differs == 0 {
            break;
        }
        number |= differs & (1 << bit);
    }
    assert_eq!(of_empty(number), stripe, "trees turn stripes");
    of_kind(number, is_counted)
}

/// Returns the tree of this number, of which the lower bits count.
fn of_kind(number: u32, is_counted: bool) -> TreeId {
    let tree = TreeId(number & TreeId::NUMBER_MAX);
    match is_counted {
        true => tree.counted(),
        false => tree,
    }
}

/// Returns the stripe on which the keys lie in the tree `to` that lie in the tree `from` where the
/// empty key lies in the tree `empty`.
fn turned(engine: &Engine, empty: TreeId, from: TreeId, to: TreeId) -> StripeIndex {
    let [empty_number, from, to] = [empty, from, to].map(TreeId::number);
    let number = empty_number.wrapping_add(to).wrapping_sub(from);
    engine.stripes.of(of_kind(number, empty.is_counted()), b"")
}

impl ValidatedBatch {
    /// Takes the state of `key` as it is now, for [`ValidatedBatch::expect`].
    pub fn watch(&mut self, table: &Table, key: &[u8]) -> Polled<Watch> {
        let engine = &self.engine;
        let applied = engine.log.applied();
        let noted = table.state.note();
        let id = noted.tree.map(|tree| tree.id).unwrap_or_default();
        let stripe = engine.stripes.of(id, key);
        match engine.stripes.stamp(stripe) {
            Some(stamp) => Polled::Ready(Watch {
                state: table.state.clone(),
                noted,
                stamp,
                applied,
            }),
            None => Polled::Pending(written(stripe)),
        }
    }

    /// Makes the commit depend on the watched key: it succeeds only if the key was not written
    /// since, and its table neither emptied nor swapped. It fails if that is a table of another
    /// store.
    ///
    /// # Panics
    /// If it is a step of a transaction.
    pub fn expect(&mut self, watch: &Watch) {
        assert!(self.within.is_none(), "a transaction watches nothing");
        if !self.engine.store.tables.has_made(&watch.state) {
            self.mislead();
            return;
        }
        self.set.watched.push(WatchedKey {
            table: watch.state.clone(),
            noted: watch.noted,
            stamp: watch.stamp,
            is_absent: false,
        });
    }

    /// As [`ValidatedBatch::expect`], of a key that did not exist: that its table was emptied is no
    /// change; that it was swapped is one. After very many emptyings it is one, since they are not
    /// all remembered, and if very many keys are expected after many. If it is emptied later, the
    /// commit fails as after a change of something that was read: another run may succeed.
    ///
    /// # Panics
    /// If it is a step of a transaction.
    pub fn expect_absent(&mut self, watch: &Watch) -> Polled<()> {
        assert!(self.within.is_none(), "a transaction watches nothing");
        if !self.engine.store.tables.has_made(&watch.state) {
            self.mislead();
            return Polled::Ready(());
        }
        if self.set.watched.has_changed() {
            return Polled::Ready(());
        }
        let key = |noted, stamp| WatchedKey {
            table: watch.state.clone(),
            noted,
            stamp,
            is_absent: true,
        };
        if watch.state.has_noted(watch.noted) {
            self.set.watched.push(key(watch.noted, watch.stamp));
            return Polled::Ready(());
        }
        let is_swapped = watch.state.was_swapped_since(watch.noted);
        let fate = if is_swapped {
            Fate::Changed
        } else {
            self.fate(watch)
        };
        match fate {
            // If the table has changed again, the batch finds another tree than this one, or
            // another swap, should this one be that of another table by now.
            Fate::Absent(tree, stamp) => {
                let noted = watch.noted.with_tree(tree);
                self.set.watched.push(key(noted, stamp));
            }
            Fate::Changed => self.set.watched.set_changed(key(watch.noted, watch.stamp)),
            Fate::Written(stripe) => return Polled::Pending(written(stripe)),
        }
        Polled::Ready(())
    }

    /// Returns true if a watched key that the commit depends on has changed already, so that the
    /// commit would fail. A change that somebody is about to make is none yet.
    pub fn has_changed_watch(&self) -> bool {
        let is_unchanged = |stamp| self.engine.stripes.unchanged_held(stamp);
        self.set.watched.changed(is_unchanged) == Some(true)
    }

    /// Returns what became of a key that did not exist. Its table has another tree by now.
    fn fate(&mut self, watch: &Watch) -> Fate {
        let (engine, watched) = (&self.engine, &mut self.set.watched);
        let Some(old) = watch.noted.tree else {
            return Fate::Changed;
        };
        // Before the stamps: who has written a tree that is gone had stamped its stripes when the
        // gate was closed to replace it. So a stamp is complete even if somebody holds the stripe.
        let Some(trees) = watched.trees_from(&engine.store.tables, old.id) else {
            return Fate::Changed;
        };
        if !engine.stripes.unchanged_held(watch.stamp) {
            return Fate::Changed;
        }
        let empty = tree_of_empty(engine, watch.stamp.stripe);
        let stripe_in = |tree| turned(engine, empty, old.id, tree);
        let later = trees.gone.iter().filter(|tree| **tree != old.id);
        let mut stamps = later.map(|tree| engine.stripes.stamp_held(stripe_in(*tree)));
        if stamps.any(|stamp| stamp.lsn() > watch.applied) {
            return Fate::Changed;
        }
        let stripe = stripe_in(trees.present.id);
        match engine.stripes.stamp(stripe) {
            Some(stamp) if stamp.lsn() > watch.applied => Fate::Changed,
            Some(stamp) => Fate::Absent(trees.present, stamp),
            None => Fate::Written(stripe),
        }
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

    use pando_sync::atomic::{AtomicU64, Ordering};
    use pando_sync::thread;

    use super::*;
    use crate::TableOptions;
    use crate::api::db::Db;
    use crate::commit::outcome::Outcome;
    use crate::event_loop::reactor::Reactor;

    const KEY: &[u8] = b"key";
    /// More trees than a case makes.
    const TREES_MAX: u32 = 8;

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

    fn reactor(db: &Db) -> Reactor {
        Reactor::new(db, Waker::noop().clone()).expect("a reactor")
    }

    /// Commits. Returns what kept it from that: true for what was watched.
    fn end(batch: &mut ValidatedBatch, reactor: &mut Reactor) -> Result<(), bool> {
        loop {
            match batch.try_commit(reactor).expect("nothing fails") {
                Polled::Ready(Outcome::Committed(_)) => return Ok(()),
                Polled::Ready(Outcome::Conflict { watched }) => return Err(watched),
                Polled::Pending(_) => thread::yield_now(),
            }
        }
    }

    fn commits(batch: &mut ValidatedBatch, db: &Db) -> bool {
        match end(batch, &mut reactor(db)) {
            Ok(()) => true,
            Err(watched) => {
                assert!(watched, "nothing was read");
                false
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
            // In none of the trees that follow is it on the stripe that the key has in one of them.
            let in_trees = |key: &[u8]| {
                let trees = (0..TREES_MAX).map(|number| TreeId(tree.0 + number));
                let stripes = trees.map(|tree| engine.stripes.of(tree, key));
                stripes.collect::<Vec<_>>()
            };
            let own = in_trees(KEY);
            let differs = |key: &Vec<u8>| !in_trees(key).iter().any(|stripe| own.contains(stripe));
            let mut keys = (0_u8..).map(|number| vec![b'o', number]);
            let other = keys.find(differs).unwrap();
            // A store that has been written: stamps are not the first ones.
            apply("pdo", &db, &table, &other);
            let watched = watch(&table, KEY);
            apply(steps, &db, &table, &other);
            let mut batch = dependent(&watched, &table);
            assert_eq!(batch.has_changed_watch(), !expected, "{steps}");
            assert_eq!(commits(&mut batch, &db), expected, "{steps}");
            let last = table.state.tree().unwrap().id;
            assert!((tree.0..tree.0 + TREES_MAX).contains(&last.0), "{last}");
            // One that existed is gone.
            let mut batch = ValidatedBatch::new(&db);
            batch.expect(&watched);
            batch.put(&table, b"result", b"").unwrap();
            let kept = !steps.contains(['p', 'e']);
            assert_eq!(batch.has_changed_watch(), !kept, "{steps}");
            assert_eq!(commits(&mut batch, &db), kept, "{steps}");
        }
    }

    #[test]
    fn what_happens_to_an_absent_key_before_the_commit_counts() {
        let cases = [
            ("", "p", Some(true)),
            ("", "pd", Some(true)),
            ("e", "p", Some(true)),
            ("e", "pd", Some(true)),
            // It is looked at again, and was not written.
            ("", "e", None),
            ("e", "e", None),
            ("ee", "eee", None),
            // It is, and was.
            ("", "pde", Some(true)),
            ("", "ep", Some(true)),
            ("e", "pde", Some(true)),
            ("e", "epde", Some(true)),
        ];
        for (before, after, expected) in cases {
            let (db, table) = open();
            let watched = watch(&table, KEY);
            apply(before, &db, &table, b"");
            let mut batch = dependent(&watched, &table);
            apply(after, &db, &table, b"");
            assert_eq!(batch.has_changed_watch(), !after.contains('e'));
            let mut reactor = reactor(&db);
            let mut ended = end(&mut batch, &mut reactor);
            assert_eq!(
                ended,
                Err(!after.contains('e')),
                "{before} {after}: the first run"
            );
            if ended == Err(false) {
                ended = end(&mut dependent(&watched, &table), &mut reactor);
            }
            assert_eq!(ended.err(), expected, "{before} {after}");
        }
    }

    /// A second look at what was read finds it unchanged, and yet the key was written.
    #[test]
    fn a_second_look_does_not_hide_that_the_table_was_emptied() {
        let (db, table) = open();
        let other = db.table("other").unwrap();
        let mut reactor = reactor(&db);
        let watched = watch(&table, KEY);
        let mut batch = ValidatedBatch::new(&db);
        for round in 0..20 {
            batch.begin_again();
            let expected = batch.expect_absent(&watched);
            assert!(matches!(expected, Polled::Ready(())), "{expected:?}");
            let read = batch.get(&other, b"read", &mut Vec::new()).unwrap();
            assert!(matches!(read, Polled::Ready(_)), "it is in memory");
            batch.put(&other, b"result", b"").unwrap();
            apply("e", &db, &table, b"");
            assert_eq!(end(&mut batch, &mut reactor), Err(false), "{round}");
        }
        apply("pd", &db, &table, b"");
        batch.begin_again();
        assert!(matches!(batch.expect_absent(&watched), Polled::Ready(())));
        batch.put(&other, b"result", b"").unwrap();
        assert_eq!(end(&mut batch, &mut reactor), Err(true));
    }

    /// However many keys are watched over however many emptyings: a batch depends on one stamp for
    /// each, and looks at a bounded number of trees.
    #[test]
    fn many_keys_over_many_emptyings_take_bounded_work_and_memory() {
        for (emptyings, expected) in [(40, Ok(())), (700, Err(true))] {
            let (db, table) = open();
            let watches: Vec<_> = (0..2000_u32)
                .map(|number| watch(&table, &number.to_be_bytes()))
                .collect();
            for _ in 0..emptyings {
                apply("e", &db, &table, b"");
            }
            let mut batch = ValidatedBatch::new(&db);
            for watch in &watches {
                assert!(matches!(batch.expect_absent(watch), Polled::Ready(())));
            }
            let stamps = if expected.is_ok() { watches.len() } else { 1 };
            assert_eq!(batch.set.watched.len(), stamps);
            batch.put(&table, b"result", b"").unwrap();
            assert_eq!(end(&mut batch, &mut reactor(&db)), expected);
            batch.reset();
            assert!(batch.set.watched.capacity_bytes() <= 64 << 10);
        }
    }

    /// The key comes and goes, each time counted in the same batch, while its table is emptied: a
    /// batch that commits, after the count was read behind the watch, finds the same count.
    #[test]
    fn no_write_is_missed_beside_emptyings() {
        const ROUNDS: u64 = 2000;
        let (db, table) = open();
        let counts = db.table("counts").unwrap();
        counts.put(b"n", &0_u64.to_le_bytes()).unwrap();
        let round = AtomicU64::new(0);
        let mut committed = 0;
        thread::scope(|scope| {
            scope.spawn(|| write_beside(&round, ROUNDS, &db, (&table, &counts)));
            scope.spawn(|| {
                while round.load(Ordering::Relaxed) < ROUNDS {
                    apply("e", &db, &table, b"");
                    thread::yield_now();
                }
            });
            let mut reactor = reactor(&db);
            let mut random = fastrand::Rng::with_seed(9);
            let _end = Last(&round, ROUNDS);
            for number in 1..=ROUNDS {
                round.store(number, Ordering::Relaxed);
                let watched = loop {
                    match ValidatedBatch::new(&db).watch(&table, KEY) {
                        Polled::Ready(watch) => break watch,
                        Polled::Pending(_) => thread::yield_now(),
                    }
                };
                let before = counts.get(b"n").unwrap();
                if table.get(KEY).unwrap().is_some() {
                    continue;
                }
                // The key comes and goes before, meanwhile, or behind.
                for _ in 0..random.u32(..20) {
                    thread::yield_now();
                }
                let after = loop {
                    let mut batch = ValidatedBatch::new(&db);
                    let mut count = Vec::new();
                    if let Polled::Pending(_) = batch.expect_absent(&watched) {
                        thread::yield_now();
                        continue;
                    }
                    let read = batch.get(&counts, b"n", &mut count).unwrap();
                    if !matches!(read, Polled::Ready(true)) {
                        thread::yield_now();
                        continue;
                    }
                    batch.put(&counts, b"result", b"").unwrap();
                    match end(&mut batch, &mut reactor) {
                        Ok(()) => break Some(count),
                        Err(true) => break None,
                        Err(false) => {}
                    }
                };
                if after.is_some() {
                    assert_eq!(after, before, "round {number}");
                    committed += 1;
                }
            }
        });
        assert!(committed > 0, "nothing was tried");
    }

    /// Ends the rounds when it is dropped: the others would never end after a failure.
    struct Last<'a>(&'a AtomicU64, u64);

    impl Drop for Last<'_> {
        fn drop(&mut self) {
            self.0.store(self.1, Ordering::Relaxed);
        }
    }

    /// Puts and deletes the key once in each round, and counts that.
    fn write_beside(round: &AtomicU64, rounds: u64, db: &Db, (table, counts): (&Table, &Table)) {
        let (mut last, mut count) = (0, 0_u64);
        let mut reactor = reactor(db);
        let mut random = fastrand::Rng::with_seed(3);
        while last < rounds {
            let now = round.load(Ordering::Relaxed);
            if now == last {
                thread::yield_now();
                continue;
            }
            last = now;
            for _ in 0..random.u32(..20) {
                thread::yield_now();
            }
            for puts in [true, false] {
                count += 1;
                loop {
                    let mut batch = ValidatedBatch::new(db);
                    match puts {
                        true => batch.put(table, KEY, b"v").expect("it is short"),
                        false => batch.delete(table, KEY),
                    }
                    let put = batch.put(counts, b"n", &count.to_le_bytes());
                    put.expect("it is short");
                    if end(&mut batch, &mut reactor) == Ok(()) {
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn a_stripe_is_turned_as_the_stripes_of_keys_are() {
        let (db, _) = open();
        let engine = db.engine();
        let most = TreeId::NUMBER_MAX;
        for (from, to) in [(7, 8), (8, 7), (1, 70_000), (most, 3), (5, 5)] {
            for key in 0..200_u32 {
                let is_counted = key % 2 == 1;
                let key = key.to_be_bytes();
                let [from, to] = [from, to].map(|number| of_kind(number, is_counted));
                let [old, new] = [from, to].map(|tree| engine.stripes.of(tree, &key));
                let empty = tree_of_empty(engine, old);
                assert_eq!(turned(engine, empty, from, to), new);
            }
        }
    }

    /// Rows of a counted table, such as the elements of collections, turn no stripe of a key of
    /// another kind of table, however many they are.
    #[test]
    fn rows_of_counted_tables_change_no_watched_key_of_plain_ones() {
        let (db, table) = open();
        let counted = TableOptions::new().counted(true);
        let rows = db.table_with("rows", counted).unwrap();
        for key in [&b"there"[..], b"absent"] {
            if key == b"there" {
                table.put(key, b"1").unwrap();
            }
            let watched = watch(&table, key);
            for row in 0..60_000_u32 {
                rows.put(&row.to_be_bytes(), b"").unwrap();
            }
            let mut batch = ValidatedBatch::new(&db);
            batch.expect(&watched);
            batch.put(&table, b"result", b"").unwrap();
            assert!(commits(&mut batch, &db), "nobody has written it");
        }
    }
}
