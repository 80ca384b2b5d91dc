//! Models of registration against commits, and of the mode. Run with
//! `RUSTFLAGS="--cfg pando_loom" cargo test -p pando-versions --release --lib`.

use pando_format::Lsn;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Arc, Gate, Mutex, Rank, thread};

use crate::snapshots::Snapshots;

/// A store with one key, whose value is the LSN of the batch that wrote it.
struct Model {
    snapshots: Snapshots,
    /// Closed only by holders of `inside`, so that closing it never waits: that is modelled where
    /// the gate is.
    gate: Gate,
    /// Held by a commit as long as it is inside the gate, and by whoever has closed that.
    inside: Mutex<()>,
    reserved: AtomicU64,
    applied: AtomicU64,
    leaf: AtomicU64,
    /// Versions: LSN of the batch, and the value that it has replaced.
    versions: Mutex<Vec<(u64, u64)>>,
}

impl Model {
    fn new(is_on: bool) -> Arc<Self> {
        let model = Self {
            snapshots: Snapshots::new(),
            gate: Gate::new(),
            inside: Mutex::new(Rank::GateClosing, ()),
            reserved: AtomicU64::new(8),
            applied: AtomicU64::new(8),
            leaf: AtomicU64::new(8),
            versions: Mutex::new(Rank::Leaf, Vec::new()),
        };
        if is_on {
            model.snapshots.turn_on(&model.gate.close());
        }
        Arc::new(model)
    }

    fn reserved_end(&self) -> Lsn {
        Lsn(self.reserved.load(Ordering::Acquire))
    }

    fn commit(&self) {
        self.commit_saving(true);
    }

    /// Commits. `has_room`: versions are saved; otherwise whoever would need one is ended.
    fn commit_saving(&self, has_room: bool) {
        let inside = self.inside.lock();
        let old = self.leaf.load(Ordering::Relaxed);
        let lsn = self.reserved.load(Ordering::Relaxed) + 8;
        self.reserved.store(lsn, Ordering::Release);
        if self.snapshots.is_on() {
            let newest = self.versions.lock().last().map_or(0, |version| version.0);
            if self.snapshots.look(Lsn(lsn)).any_from(Lsn(newest)) {
                match has_room {
                    true => self.versions.lock().push((lsn, old)),
                    false => self.snapshots.end_below(Lsn(lsn)),
                }
            }
        }
        self.leaf.store(lsn, Ordering::Release);
        self.applied.store(lsn, Ordering::Release);
        drop(inside);
    }

    /// Reads at a snapshot, and checks that it finds the newest value that belongs to it.
    fn read(&self) {
        let beginning = self.snapshots.begin(self.reserved_end());
        if !self.snapshots.is_on() {
            let _inside = self.inside.lock();
            self.snapshots.turn_on(&self.gate.close());
        }
        let snapshot = beginning.at(self.reserved_end());
        let lsn = snapshot.lsn().0;
        while self.applied.load(Ordering::Acquire) < lsn {
            thread::yield_now();
        }
        for _ in 0..2 {
            let mut value = self.leaf.load(Ordering::Acquire);
            if value > lsn {
                let versions = self.versions.lock();
                let first = versions.iter().find(|version| version.0 > lsn);
                value = first.map_or(value, |version| version.1);
            }
            if !snapshot.is_ended() {
                assert_eq!(value, lsn, "every batch writes the key");
            }
        }
    }
}

fn check(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(body);
}

/// Runs `first` beside `second` on one model.
fn beside(model: &Arc<Model>, first: fn(&Model), second: fn(&Model)) {
    let other = thread::spawn({
        let model = model.clone();
        move || first(&model)
    });
    second(model);
    other.join().expect("it does not panic");
}

#[test]
fn a_snapshot_beside_a_commit_reads_the_value_of_its_lsn() {
    check(3, || beside(&Model::new(true), Model::commit, Model::read));
}

#[test]
fn a_snapshot_between_two_commits_reads_the_value_of_its_lsn() {
    let twice = |model: &Model| {
        model.commit();
        model.commit();
    };
    check(3, move || beside(&Model::new(true), twice, Model::read));
}

/// Models have one slot: the second snapshot is in the crowd.
#[test]
fn a_snapshot_without_a_slot_reads_the_value_of_its_lsn() {
    check(3, || {
        let model = Model::new(true);
        let other = model.snapshots.begin(model.reserved_end());
        let other = other.at(model.reserved_end());
        // It keeps the slot, and nothing is saved for it.
        assert_eq!(model.snapshots.end_oldest(), Some(Lsn(8)));
        beside(&model, Model::commit, Model::read);
        drop(other);
    });
}

#[test]
fn the_first_snapshot_turns_the_mode_on_before_it_has_an_lsn() {
    check(3, || beside(&Model::new(false), Model::commit, Model::read));
}

#[test]
fn a_mode_that_is_turned_off_stays_on_for_who_begins() {
    let turn_off_and_commit = |model: &Model| {
        let inside = model.inside.lock();
        let _is_off = model.snapshots.turn_off(&model.gate.close());
        drop(inside);
        model.commit();
    };
    check(3, move || {
        beside(&Model::new(true), turn_off_and_commit, Model::read);
    });
}

/// A generation that is dropped at the horizon had nothing that the snapshot needs, whoever drops
/// it.
#[test]
fn what_is_dropped_at_the_horizon_is_not_needed() {
    let drop_versions = |model: &Model| {
        let horizon = model.snapshots.horizon(|| model.reserved_end());
        model
            .versions
            .lock()
            .retain(|version| version.0 > horizon.0);
    };
    check(2, move || {
        let model = Model::new(true);
        let dropping = thread::spawn({
            let model = model.clone();
            move || drop_versions(&model)
        });
        beside(&model, Model::commit, Model::read);
        dropping.join().expect("it does not panic");
    });
}

/// A reader that is ended says so, if it has seen anything of what was done after that.
#[test]
fn a_snapshot_that_was_ended_shows_nothing_that_was_dropped() {
    let commit_end_and_drop = |model: &Model| {
        model.commit();
        if model.snapshots.end_oldest().is_some() {
            model.versions.lock().clear();
        }
    };
    check(3, move || {
        beside(&Model::new(true), commit_end_and_drop, Model::read);
    });
}

/// A commit that cannot save ends whoever would need what it replaces, also while that begins.
#[test]
fn a_snapshot_whose_version_is_not_saved_is_ended() {
    let without_room = |model: &Model| model.commit_saving(false);
    check(3, move || {
        beside(&Model::new(true), without_room, Model::read);
    });
    check(3, move || {
        let model = Model::new(true);
        let other = model.snapshots.begin(model.reserved_end());
        let other = other.at(model.reserved_end());
        assert_eq!(model.snapshots.end_oldest(), Some(Lsn(8)));
        beside(&model, without_room, Model::read);
        drop(other);
    });
}
