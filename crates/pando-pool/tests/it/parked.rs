//! Parked frames: as many as wanted, as far as others are free, and none is lost.

use pando_format::{Lsn, PageId};

use crate::rig::Rig;

const FRAMES: usize = 64;

fn settle(rig: &Rig) {
    while rig.pool.adjust_parked(7) > 0 {}
}

#[test]
fn free_frames_are_parked_at_once_and_others_as_pages_leave_them() {
    let rig = Rig::new(FRAMES);
    let pages: Vec<PageId> = (0..50).map(|value| rig.create(value)).collect();
    rig.checkpoint(Lsn(1), || ());
    rig.pool.park_frames(32);
    assert_eq!(
        (rig.pool.frames_in_use_max(), rig.pool.parked_count()),
        (32, 0)
    );
    settle(&rig);
    let (free, parked) = (rig.pool.free_count(), rig.pool.parked_count());
    assert_eq!(free + parked, FRAMES - 50);
    assert!(
        (1..=4).contains(&free),
        "what wakes the cleaner stays: {free}"
    );
    rig.pool.sweep(FRAMES * 10, 50 - 32 + free, &mut Vec::new());
    settle(&rig);
    assert_eq!((rig.pool.parked_count(), rig.pool.free_count()), (32, 4));
    // Pages come and go in the other frames.
    for value in 50..200 {
        rig.create(value);
    }
    for (value, page) in pages.iter().enumerate() {
        assert_eq!(rig.read(*page), value as u64);
    }
    let parked = rig.pool.parked_count();
    assert!((32..40).contains(&parked), "{parked}");
    rig.pool.park_frames(10);
    settle(&rig);
    assert_eq!(rig.pool.parked_count(), 10);
    // A pool that cannot empty frames takes them back; later they are parked again.
    assert_eq!((rig.pool.unpark(3), rig.pool.parked_count()), (3, 7));
    assert_eq!((rig.pool.unpark(30), rig.pool.parked_count()), (7, 0));
    settle(&rig);
    assert_eq!(rig.pool.parked_count(), 10);
    rig.pool.park_frames(0);
    settle(&rig);
    assert_eq!((rig.pool.parked_count(), rig.pool.unpark(1)), (0, 0));
    assert_eq!(rig.pool.frames_in_use_max(), FRAMES);
}
