//! Records that are put in runs end up where single insertions would have put them.

use std::collections::BTreeMap;

use fastrand::Rng;
use pando_sync::thread;

use crate::rig::{Rig, Session, check_tree, random_bytes};

fn key(number: usize) -> Vec<u8> {
    // Most keys share long prefixes. Every 97th key is shorter and shares less.
    match number % 97 {
        0 => format!("{number:07}").into_bytes(),
        _ => format!("{number:07}:{number:03}").into_bytes(),
    }
}

fn value(random: &mut Rng, page_bytes: usize) -> Vec<u8> {
    let bytes = match random.usize(..60) {
        0 => page_bytes * 2,
        1..4 => page_bytes / 3,
        _ => random.usize(..120),
    };
    random_bytes(random, bytes)
}

fn runs_agree_with_a_map(seed: u64, rig: Rig) {
    const KEYS: usize = 5000;
    let (page_bytes, mut random) = (rig.pool.page_size().bytes(), Rng::with_seed(seed));
    let mut sessions = [Session::default(), Session::default()];
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let (mut all, mut in_runs) = (0, 0);
    let (mut gone, mut gone_in_runs) = (0, 0);
    for round in 0..1500 {
        let session = &mut sessions[random.usize(..2)];
        // One run in three begins after all existing keys.
        let first = match random.usize(..3) {
            0 => model.keys().next_back().map_or(0, |last| {
                let number = String::from_utf8_lossy(&last[..7]).parse::<usize>();
                number.unwrap() + 1
            }),
            _ => random.usize(..KEYS),
        };
        let step = [1, 1, 1, 2, 7][random.usize(..5)];
        let numbers = (first..).step_by(step).take(1 + random.usize(..80));
        let entries: Vec<_> = numbers
            .map(|number| (key(number), value(&mut random, page_bytes)))
            .collect();
        if round % 5 == 4 && rig.tree.id.is_counted() {
            let keys: Vec<_> = entries.iter().map(|(key, _)| &key[..]).collect();
            let before = model.len();
            let (run, removed) = rig.remove_all(session, &keys);
            model.retain(|key, _| keys.binary_search(&&key[..]).is_err());
            assert_eq!(removed, before - model.len());
            (gone, gone_in_runs) = (gone + removed, gone_in_runs + run);
        } else if round % 5 == 4 {
            for (key, _) in &entries {
                let existed = rig.remove(session, key);
                assert_eq!(existed, model.remove(key).is_some());
            }
        } else {
            let lent: Vec<_> = entries.iter().map(|(k, v)| (&k[..], &v[..])).collect();
            let before = model.len();
            let (run, new) = rig.insert_all(session, &lent);
            model.extend(entries.iter().cloned());
            assert_eq!(new, model.len() - before);
            (all, in_runs) = (all + entries.len(), in_runs + run);
        }
        if round % 50 == 49 {
            let facts = check_tree(&rig);
            assert_eq!(facts.records, model.len());
            let weights = model.iter().map(|(key, value)| rig.weight(key, value));
            assert_eq!(facts.weight, weights.sum());
        }
    }
    assert!(in_runs * 2 > all, "{in_runs} of {all}");
    assert!(gone_in_runs * 2 >= gone, "{gone_in_runs} of {gone}");
    let [session, _] = &mut sessions;
    for (key, value) in &model {
        assert_eq!(rig.get(session, key), Some(&value[..]));
    }
}

#[test]
fn runs_with_removals_and_long_values_agree_with_a_map() {
    for seed in 0..3 {
        for (at, page_bytes) in (0..).zip([4096, 16384]) {
            for (kind, rig) in (0..).zip(Rig::of_each_kind(page_bytes, 4096)) {
                runs_agree_with_a_map(seed + 10 * at + 20 * kind, rig);
            }
        }
    }
}

/// The runs of each thread end in leaves that other threads write to.
#[test]
fn runs_of_threads_in_the_same_leaves_lose_nothing() {
    for rig in Rig::of_each_kind(4096, 8192) {
        threads_put_runs(&rig);
    }
}

fn threads_put_runs(rig: &Rig) {
    const THREADS: usize = 4;
    const RUNS: usize = 400;
    thread::scope(|scope| {
        for who in 0..THREADS {
            scope.spawn(move || {
                let (mut session, mut random) = (Session::default(), Rng::with_seed(who as u64));
                for run in 0..RUNS {
                    let numbers = (0..20).map(|at| (run * 20 + at) * THREADS + who);
                    let keys: Vec<_> = numbers.map(key).collect();
                    let value = random_bytes(&mut random, 60);
                    let entries: Vec<_> = keys.iter().map(|key| (&key[..], &value[..])).collect();
                    let (_, new) = rig.insert_all(&mut session, &entries);
                    assert_eq!(new, entries.len());
                    assert!(keys.iter().all(|key| {
                        rig.get(&mut session, key).is_some_and(|got| *got == value)
                    }));
                }
            });
        }
    });
    assert_eq!(check_tree(rig).records, THREADS * RUNS * 20);
}

/// An ascending load moves no records: a leaf is full when the next one begins.
#[test]
fn leaves_behind_an_ascending_load_are_full() {
    let (rig, mut session) = (Rig::new(4096, 8192), Session::default());
    let keys: Vec<_> = (0..20_000).map(|number| format!("{number:016}")).collect();
    let entries: Vec<_> = keys
        .iter()
        .map(|key| (key.as_bytes(), &[7_u8; 100][..]))
        .collect();
    for batch in entries.chunks(1000) {
        let (in_runs, new) = rig.insert_all(&mut session, batch);
        assert!(in_runs > 900, "{in_runs}");
        assert_eq!(new, 1000);
    }
    let facts = check_tree(&rig);
    assert_eq!(facts.records, 20_000);
    let fill = facts.leaf_bytes as f64 / (facts.leaves * 4096) as f64;
    assert!(fill > 0.95, "{fill}");
}

/// Each thread removes what it has put, from leaves in which others put and remove.
#[test]
fn runs_of_removals_by_threads_lose_no_count() {
    const THREADS: usize = 4;
    const RUNS: usize = 300;
    let rig = &Rig::counted(4096, 8192);
    thread::scope(|scope| {
        for who in 0..THREADS {
            scope.spawn(move || {
                let mut session = Session::default();
                for run in 0..RUNS {
                    let numbers = (0..20).map(|at| (run % 10 * 20 + at) * THREADS + who);
                    let keys: Vec<_> = numbers.map(key).collect();
                    let entries: Vec<_> = keys.iter().map(|key| (&key[..], &[7; 60][..])).collect();
                    assert_eq!(rig.insert_all(&mut session, &entries).1, entries.len());
                    // One stays for the next round, and is removed alone.
                    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
                    let (last, others) = keys.split_last().unwrap();
                    assert_eq!(rig.remove_all(&mut session, others).1, others.len());
                    assert!(rig.remove(&mut session, last));
                }
                let rest = [&b"9999999"[..], &[who as u8]].concat();
                rig.insert(&mut session, &rest, b"stays");
            });
        }
    });
    assert_eq!(check_tree(rig).records, THREADS);
}
