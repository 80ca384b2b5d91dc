//! Little room: what is reserved is there, and what is not needed goes.

use pando_format::{Lsn, PageSize, TreeId};
use pando_stats::Statistics;
use pando_sync::{Arc, Gate};
use pando_versions::{BeforeImage, Snapshots, VersionScratch, Versions};

fn versions(bytes: u64) -> Versions {
    let page_size = PageSize::new(4096).expect("a page size");
    Versions::new(page_size, bytes, Arc::new(Statistics::new())).expect("memory")
}

/// Whatever a batch of that size is, its reservation suffices.
#[test]
fn a_batch_that_has_reserved_room_finds_it() {
    let gate = Gate::new();
    let mut random = fastrand::Rng::with_seed(1);
    for value in [0, 30, 700, 1900] {
        for writes in [1, 3, 50] {
            let versions = versions(8 << 20);
            let snapshots = Snapshots::new();
            let closed = gate.close();
            snapshots.turn_on(&closed);
            assert!(versions.open_generation(&closed));
            drop(closed);
            let _old = snapshots.begin(Lsn(8)).at(Lsn(8));
            let mut scratch = VersionScratch::default();
            let value = vec![7; value];
            let mut lsn = 8;
            loop {
                let bytes = writes * (value.len() as u64 + 60);
                let before = versions.used();
                let Some(room) = versions.try_reserve(versions.frames_for(writes, bytes)) else {
                    break;
                };
                lsn += 8;
                let readers = snapshots.look(Lsn(lsn));
                for number in 0..u32::try_from(writes).expect("few") {
                    let mut key = [0; 24];
                    random.fill(&mut key);
                    let saved = versions.save(
                        &readers,
                        (TreeId(16), &key),
                        number,
                        BeforeImage::Bytes(&value),
                        &mut scratch,
                    );
                    assert!(saved.expect("it was reserved"), "somebody reads");
                }
                let spent = versions.used() - before;
                assert!(spent <= room.frames(), "{spent} of {}", room.frames());
            }
            let used = versions.used() * 10 / versions.frames();
            assert!(used >= 7, "{used} tenths of the room are used");
            assert_eq!(versions.reserved(), 0);
        }
    }
}

#[test]
fn the_oldest_snapshot_is_ended_first_and_its_versions_go() {
    let (gate, versions, snapshots) = (Gate::new(), versions(1 << 20), Snapshots::new());
    let open = |lsn: u64| snapshots.begin(Lsn(lsn)).at(Lsn(lsn));
    let turn = || {
        let closed = gate.close();
        snapshots.turn_on(&closed);
        assert!(versions.open_generation(&closed));
    };
    let mut scratch = VersionScratch::default();
    let mut save = |lsn: u64| {
        let readers = snapshots.look(Lsn(lsn));
        let key = lsn.to_be_bytes();
        let image = BeforeImage::Bytes(b"old");
        let saved = versions.save(&readers, (TreeId(16), &key), 0, image, &mut scratch);
        saved.expect("there is room")
    };
    turn();
    // More than have a slot: some are in the crowd.
    let snapshot: Vec<_> = (1..40).map(|number| open(number * 100 / 8 * 8)).collect();
    assert_eq!(snapshots.count(), 39);
    assert!(save(2000) && save(4000));
    turn();
    assert!(save(4008) && save(4800));
    assert!(!versions.drop_unneeded(snapshots.horizon(|| Lsn(5000))));
    for (number, ended) in snapshot.iter().enumerate() {
        assert!(!ended.is_ended());
        assert_eq!(snapshots.end_oldest(), Some(ended.lsn()), "{number}");
        assert!(ended.is_ended());
    }
    assert_eq!(snapshots.end_oldest(), None);
    assert!(!save(5600), "nobody reads");
    assert!(versions.drop_unneeded(snapshots.horizon(|| Lsn(5600))));
    let closed = gate.close();
    assert!(snapshots.turn_off(&closed), "nothing is saved for them");
    assert!(!snapshots.is_empty(), "their owners have them");
    drop(snapshot);
    assert!(snapshots.is_empty());
    versions.free(&versions.hide_unneeded(Lsn(5600), &closed));
    assert_eq!(versions.used(), 0);
}

/// Versions that no registered snapshot could read are not saved: a counter that is changed very
/// often leaves one version for each snapshot.
#[test]
fn a_hot_key_leaves_one_version_for_each_snapshot() {
    let (gate, versions, snapshots) = (Gate::new(), versions(1 << 20), Snapshots::new());
    let closed = gate.close();
    snapshots.turn_on(&closed);
    assert!(versions.open_generation(&closed));
    drop(closed);
    let mut scratch = VersionScratch::default();
    let (mut lsn, mut saved) = (8, 0);
    let mut open = Vec::new();
    for turn in 0..10 {
        open.push(snapshots.begin(Lsn(lsn)).at(Lsn(lsn)));
        if turn == 5 {
            // The versions of older generations are known, too.
            assert!(versions.open_generation(&gate.close()));
        }
        for _ in 0..1000 {
            lsn += 8;
            let readers = snapshots.look(Lsn(lsn));
            let image = BeforeImage::Bytes(b"counter");
            let done = versions.save(&readers, (TreeId(16), b"hot"), 0, image, &mut scratch);
            saved += u32::from(done.expect("there is room"));
        }
    }
    assert_eq!(saved, 10);
}
