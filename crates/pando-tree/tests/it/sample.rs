//! Records at random.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::rig::{Rig, Session, retry};

#[test]
fn each_record_comes_about_as_often_as_others() {
    const RECORDS: usize = 2000;
    const DRAWS: usize = 200 * RECORDS;
    let rig = Rig::new(4096, 4096);
    let mut session = Session::default();
    let mut random = Rng::with_seed(1);
    // Nine of ten have the same beginning, and values of different lengths.
    for number in 0..RECORDS {
        let first = if number % 10 == 0 { 'b' } else { 'a' };
        let value = vec![7; random.usize(0..150)];
        rig.insert(
            &mut session,
            format!("{first}{number:06}").as_bytes(),
            &value,
        );
    }
    let mut counts = BTreeMap::new();
    let (mut key, mut of_b) = (Vec::new(), 0);
    for _ in 0..DRAWS {
        let mut draw = |count: usize| random.usize(..count);
        if retry(|| rig.tree.try_sample(&rig.pool, &mut draw, &mut key)) {
            *counts.entry(key.clone()).or_insert(0_usize) += 1;
            of_b += usize::from(key[0] == b'b');
        }
    }
    assert_eq!(counts.len(), RECORDS, "some never come");
    let (least, most) = (counts.values().min(), counts.values().max());
    assert!(
        *least.unwrap() >= 40 && *most.unwrap() <= 800,
        "{least:?} {most:?}"
    );
    let share = of_b * 100 / DRAWS;
    assert!((5..=20).contains(&share), "{share} %");
}

#[test]
fn an_empty_tree_has_no_record() {
    let rig = Rig::new(4096, 64);
    let mut key = b"before".to_vec();
    assert!(!retry(|| rig.tree.try_sample(
        &rig.pool,
        &mut |_| 0,
        &mut key
    )));
    assert_eq!(key, b"");
}
