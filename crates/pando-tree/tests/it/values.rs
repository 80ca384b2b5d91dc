//! Values in overflow pages.

use fastrand::Rng;
use pando_format::Lsn;
use pando_pool::{Marks, Restart};
use pando_tree::{Scratch, VALUE_BYTES_MAX};

use crate::rig::{Rig, Session, check_tree, enter, random_bytes, retry};

#[test]
fn values_of_every_size_come_back() {
    for page_bytes in [4096, 65536] {
        let rig = Rig::new(page_bytes, (64 << 20) / page_bytes);
        let (mut session, mut random) = (Session::default(), Rng::with_seed(2));
        let piece = page_bytes - 64;
        let mut lens = vec![0, 1, 7, 8, 9, VALUE_BYTES_MAX];
        for boundary in [
            page_bytes / 2 - 64,
            piece,
            12 * piece,
            13 * piece,
            piece / 4 * piece,
        ] {
            let near = boundary.min(VALUE_BYTES_MAX - 20);
            lens.extend(near - 20..near + 20);
        }
        let key = b"the key";
        let all = random_bytes(&mut random, VALUE_BYTES_MAX);
        for len in lens {
            let start = random.usize(..100).min(all.len() - len);
            let value = &all[start..start + len];
            rig.insert(&mut session, key, value);
            assert_eq!(rig.get(&mut session, key), Some(value), "{len} bytes");
            for bytes in [
                0,
                1,
                24,
                piece,
                13 * piece,
                piece / 4 * piece + 1,
                len,
                len + 1,
            ] {
                let Session { reader, out, .. } = &mut session;
                let head = rig.tree.try_get_head(&rig.pool, key, bytes, reader, out);
                let (lookup, total, _) = head.unwrap();
                assert!(lookup.found && total == len, "{bytes} of {len} bytes");
                let read = out.len();
                assert!(
                    read == len || read == bytes,
                    "{read} of {len} bytes, not {bytes}"
                );
                assert_eq!(out, &value[..read]);
            }
        }
        assert_eq!(check_tree(&rig).records, 1);
        assert!(rig.remove(&mut session, key));
        assert_eq!(check_tree(&rig).overflow, 0);
    }
}

#[test]
fn an_abandoned_insertion_leaks_nothing() {
    let rig = Rig::new(4096, 64);
    let used = rig.pages_used();
    let marks = Marks {
        lsn: Lsn(1),
        multi_lsn: Lsn(0),
    };
    let mut scratch = Scratch::new();
    let value = vec![1; 1 << 20];
    let result = rig.tree.try_insert(
        &rig.pool,
        &rig.pool.apply_token(&enter(&rig.pool)),
        marks,
        b"key",
        &value,
        &mut scratch,
    );
    assert!(result.is_err(), "more pages than frames");
    assert!(rig.pages_used() > used);
    rig.change(|token| scratch.abandon(&rig.pool, token));
    assert!(scratch.is_finished());
    assert_eq!(rig.pages_used(), used);
    rig.change(|token| {
        rig.tree
            .try_insert(&rig.pool, token, marks, b"key", b"short", &mut scratch)
    });
    check_tree(&rig);
}

#[test]
fn an_insertion_abandoned_when_all_is_written_leaks_nothing() {
    let rig = Rig::new(4096, 1024);
    let used = rig.pages_used();
    let marks = Marks {
        lsn: Lsn(1),
        multi_lsn: Lsn(0),
    };
    let mut scratch = Scratch::new();
    let value = vec![1; 1 << 20];
    let latch = retry(|| rig.pool.exclusive(rig.tree.root));
    let result = rig.tree.try_insert(
        &rig.pool,
        &rig.pool.apply_token(&enter(&rig.pool)),
        marks,
        b"key",
        &value,
        &mut scratch,
    );
    assert_eq!(result, Err(Restart::Conflict));
    drop(latch);
    assert_eq!(rig.pages_used(), used + 1 + (1 << 20) / 4032 + 1);
    rig.change(|token| scratch.abandon(&rig.pool, token));
    assert_eq!(rig.pages_used(), used);
}

#[test]
fn reading_again_allocates_nothing() {
    let rig = Rig::new(4096, 4096);
    let mut session = Session::default();
    rig.insert(&mut session, b"long", &vec![1; 100_000]);
    rig.insert(&mut session, b"short", &[2; 100]);
    for _ in 0..3 {
        rig.get(&mut session, b"long");
    }
    rig.get(&mut session, b"short");
    let before = session.out.capacity();
    for _ in 0..10 {
        rig.get(&mut session, b"short");
        assert_eq!(session.out.capacity(), before);
    }
}
