//! Random batches, snapshots and generations, compared with a history that forgets nothing.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use fastrand::Rng;
use pando_format::{Lsn, PageSize, TreeId};
use pando_stats::Statistics;
use pando_sync::{Arc, Gate};
use pando_versions::{
    BeforeImage, Found, NotExported, Registration, Snapshots, VersionRange, VersionScratch,
    Versions,
};

type Value = Option<Vec<u8>>;
/// The values of a key, by the LSN from which each counts.
type Values = Vec<(Lsn, Value)>;

/// What a leaf would have, and what it had before.
struct Twin {
    versions: Versions,
    snapshots: Snapshots,
    gate: Gate,
    lsn: Lsn,
    /// Of each key its values, by LSN.
    history: BTreeMap<(TreeId, Vec<u8>), Values>,
    scratch: VersionScratch,
    saved: u64,
    /// Of each key the LSN of the newest version.
    newest: BTreeMap<(TreeId, Vec<u8>), Lsn>,
}

/// The value at `lsn` in a list of values.
fn value_at(values: &[(Lsn, Value)], lsn: Lsn) -> Value {
    let newest = values.iter().rev().find(|(of, _)| *of <= lsn);
    newest.and_then(|(_, value)| value.clone())
}

fn image(value: &Value) -> BeforeImage<'_> {
    value
        .as_deref()
        .map_or(BeforeImage::Absent, BeforeImage::Bytes)
}

impl Twin {
    fn new(page_bytes: usize, bytes: u64) -> Self {
        let page_size = PageSize::new(page_bytes).expect("a page size");
        let statistics = Arc::new(Statistics::new());
        let twin = Self {
            versions: Versions::new(page_size, bytes, statistics).expect("memory"),
            snapshots: Snapshots::new(),
            gate: Gate::new(),
            lsn: Lsn(8),
            history: BTreeMap::new(),
            scratch: VersionScratch::default(),
            saved: 0,
            newest: BTreeMap::new(),
        };
        let closed = twin.gate.close();
        twin.snapshots.turn_on(&closed);
        assert!(twin.versions.open_generation(&closed));
        drop(closed);
        twin
    }

    fn begin(&self) -> Registration {
        self.snapshots.begin(self.lsn).at(self.lsn)
    }

    fn commit(&mut self, writes: &BTreeMap<(TreeId, Vec<u8>), Value>) {
        self.lsn = Lsn(self.lsn.0 + 8);
        let readers = self.snapshots.look(self.lsn);
        for (number, ((tree, key), value)) in writes.iter().enumerate() {
            let values = self.history.entry((*tree, key.clone())).or_default();
            let old = values.last().and_then(|(_, value)| value.clone());
            let saved = self.versions.save(
                &readers,
                (*tree, key),
                u32::try_from(number).expect("few"),
                image(&old),
                &mut self.scratch,
            );
            let saved = saved.expect("there is room");
            let newest = self.newest.entry((*tree, key.clone())).or_default();
            // No version that a reader needs is missing, and there is none that nobody needs.
            assert_eq!(saved, readers.any_from(*newest), "{key:?} at {}", self.lsn);
            if saved {
                *newest = self.lsn;
            }
            self.saved += u64::from(saved);
            values.push((self.lsn, value.clone()));
        }
    }

    fn turn_generations(&mut self, random: &mut Rng) {
        let closed = self.gate.close();
        let _none_is_free = random.bool() && self.versions.open_generation(&closed);
        drop(closed);
        let horizon = self.snapshots.horizon(|| self.lsn);
        self.versions.drop_unneeded(horizon);
    }

    /// Checks every key at `snapshot`, and some ranges.
    fn check(&mut self, snapshot: &Registration, random: &mut Rng) {
        let lsn = snapshot.lsn();
        for ((tree, key), values) in &self.history {
            let (newest, now) = values.last().expect("a value");
            let found = self.versions.find((*tree, key), lsn, &mut self.scratch);
            let expected = value_at(values, lsn);
            match found.expect("nobody is in the way") {
                Found::Replaced(found) => assert_eq!(found, image(&expected), "{key:?} at {lsn}"),
                Found::Unchanged => {
                    assert!(*newest <= lsn || *now == expected, "{key:?} at {lsn}");
                }
            }
        }
        self.check_export(lsn);
        let mut range = VersionRange::default();
        for _ in 0..5 {
            let trees: Vec<TreeId> = self.history.keys().map(|(tree, _)| *tree).collect();
            let Some(tree) = random.choice(trees) else {
                return;
            };
            let (low, high) = (random_key(random, 40), random_key(random, 40));
            let (low, high) = (low.clone().min(high.clone()), low.max(high));
            let bounds = [Bound::Unbounded, Bound::Included(()), Bound::Excluded(())];
            let low = bounds[random.usize(..3)].map(|()| &low[..]);
            let high = bounds[random.usize(..3)].map(|()| &high[..]);
            let collected =
                self.versions
                    .collect(tree, (low, high), lsn, &mut range, &mut self.scratch);
            collected.expect("nobody is in the way");
            self.check_range(tree, (low, high), lsn, &range);
        }
    }

    /// Checks that an export has each key that has changed after `lsn` once, in order.
    fn check_export(&self, lsn: Lsn) {
        let mut exported: BTreeMap<(TreeId, Vec<u8>), Value> = BTreeMap::new();
        let result = self.versions.export(lsn, |tree, key, record| {
            let image = BeforeImage::of_record(record).expect("a record");
            let value = match image {
                BeforeImage::Absent => None,
                BeforeImage::Bytes(bytes) => Some(bytes.to_vec()),
                other => panic!("{other:?}"),
            };
            let last = exported.last_key_value().map(|(key, _)| key.clone());
            let key = (tree, key.to_vec());
            assert!(last.is_none_or(|last| last < key), "not in order");
            exported.insert(key, value);
            ControlFlow::Continue(())
        });
        match result {
            Ok(()) => {}
            Err(NotExported::LongKey) => return,
            Err(error) => panic!("{error:?}"),
        }
        for (key, values) in &self.history {
            let (newest, now) = values.last().expect("a value");
            let expected = value_at(values, lsn);
            match exported.get(key) {
                Some(value) => assert_eq!(*value, expected, "{key:?} at {lsn}"),
                None => assert!(*newest <= lsn || *now == expected, "{key:?} at {lsn}"),
            }
        }
    }

    fn check_range(
        &self,
        tree: TreeId,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        lsn: Lsn,
        range: &VersionRange,
    ) {
        let collected: BTreeMap<&[u8], BeforeImage<'_>> = range.iter().collect();
        assert_eq!(collected.len(), range.iter().count(), "a key twice");
        for ((of, key), values) in &self.history {
            let inside = std::ops::RangeBounds::contains(&bounds, &&key[..]);
            let found = collected.get(&key[..]);
            if *of != tree || !inside {
                assert!(*of != tree || found.is_none(), "{key:?} is outside");
                continue;
            }
            let expected = value_at(values, lsn);
            match found {
                Some(found) => assert_eq!(*found, image(&expected), "{key:?} at {lsn}"),
                None => {
                    let (newest, now) = values.last().expect("a value");
                    assert!(*newest <= lsn || *now == expected, "{key:?} at {lsn}");
                }
            }
        }
    }
}

/// A key of few letters, up to `len_max` bytes long: many keys begin with others.
fn random_key(random: &mut Rng, len_max: usize) -> Vec<u8> {
    let len = random.usize(..len_max);
    let same = random.usize(..=len);
    let mut key = vec![b'k'; same];
    key.resize_with(len, || [0, 1, b'k', 255][random.usize(..4)]);
    key
}

fn run(seed: u64, page_bytes: usize, len_max: usize, value_max: usize) {
    let mut random = Rng::with_seed(seed);
    let mut twin = Twin::new(page_bytes, 64 << 20);
    let mut open = Vec::new();
    let mut keys: Vec<(TreeId, Vec<u8>)> = Vec::new();
    for _ in 0..60 {
        keys.push((TreeId(random.u32(16..19)), random_key(&mut random, len_max)));
    }
    for step in 0..400 {
        match random.u32(..10) {
            0 | 1 if open.len() < 20 => open.push(twin.begin()),
            2 if !open.is_empty() => {
                let ended = open.swap_remove(random.usize(..open.len()));
                drop(ended);
            }
            3 => twin.turn_generations(&mut random),
            _ => {
                let writes = (0..random.usize(1..6)).map(|_| {
                    let key = keys[random.usize(..keys.len())].clone();
                    let len = random.usize(..value_max);
                    let value = random.bool().then(|| vec![random.u8(..); len]);
                    (key, value)
                });
                let writes = writes.collect();
                twin.commit(&writes);
            }
        }
        if step % 10 == 0 {
            for snapshot in &open {
                twin.check(snapshot, &mut random);
            }
        }
    }
    assert!(twin.saved > 100, "{} versions are no test", twin.saved);
    drop(open);
    let closed = twin.gate.close();
    assert!(twin.snapshots.turn_off(&closed), "all have ended");
    twin.versions
        .free(&twin.versions.hide_unneeded(twin.lsn, &closed));
    drop(closed);
    assert_eq!(twin.versions.used(), 0, "a frame was lost");
}

#[test]
fn every_open_snapshot_reads_the_state_of_its_lsn() {
    for seed in 0..40 {
        run(seed, 4096, 30, 100);
    }
}

/// Pages of versions are no larger than those of the store here, so long keys are cut, and long
/// values lie in overflow pages.
#[test]
fn keys_and_values_that_are_too_long_for_a_leaf_of_versions_are_read() {
    for seed in 0..2 {
        run(seed, 65536, 16 << 10, 30 << 10);
    }
}
