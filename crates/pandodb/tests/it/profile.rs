//! Profiles: single operations report where they spent their time.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::{
    CommitStep, Db, Durability, IoBackend, Profile, Table, Wait, WriteOptions, profiled,
};

use crate::fixture::fill;

const KEYS: u32 = 3000;

fn filled(db: &Db) -> Table {
    let table = db.table("t").unwrap();
    fill(&table, 0..KEYS, |number| (number.to_be_bytes(), [7; 100]));
    table
}

fn waits(profile: &Profile) -> Vec<Wait> {
    let waited = |wait: &Wait| profile.waited(*wait).count > 0;
    Wait::ALL.into_iter().filter(waited).collect()
}

#[test]
fn a_get_in_memory_goes_down_its_levels_and_waits_for_nothing() {
    let db = Db::builder()
        .io_backend(IoBackend::Memory)
        .open("")
        .unwrap();
    let table = filled(&db);
    let key = 5_u32.to_be_bytes();
    table.get(&key).unwrap();
    let (value, profile) = profiled(|| table.get(&key));
    assert_eq!(value.unwrap().unwrap(), [7; 100]);
    // 3,000 entries of 104 bytes take about 90 leaves, which fit in one inner node.
    assert_eq!((profile.gets(), profile.levels()), (1, 2));
    assert_eq!(waits(&profile), []);
    assert_eq!(profile.busy(), profile.total());
    let text = profile.to_string();
    assert!(text.ends_with(" gets=1 levels=2"), "{text}");
}

#[test]
fn a_get_after_a_start_waits_for_the_pages_that_it_reads() {
    let directory = tempfile::tempdir().unwrap();
    filled(&Db::open(directory.path()).unwrap());
    let db = Db::open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    let reads = || db.statistics().get(pandodb::statistics::Ticker::PageReads);
    let before = reads();
    let (found, profile) = profiled(|| table.contains(&9_u32.to_be_bytes()));
    assert!(found.unwrap());
    let page = profile.waited(Wait::Page);
    assert_eq!(waits(&profile), [Wait::Page]);
    // The engine reads pages of its own meanwhile.
    assert!(page.count <= reads() - before, "{profile}");
    assert!(page.count > 0 && page.time > Duration::ZERO && page.time < profile.total());
    assert_eq!(profile.busy(), profile.total() - page.time);
}

#[test]
fn a_put_has_every_step_of_its_commit_and_waits_for_the_log_if_it_must() {
    let db = Db::builder()
        .io_backend(IoBackend::Memory)
        .open("")
        .unwrap();
    let table = filled(&db);
    for (durability, times) in [(Durability::Durable, 1), (Durability::None, 0)] {
        let options = WriteOptions::durability(durability);
        let (put, profile) = profiled(|| table.put_with(b"k", b"v", options));
        put.unwrap();
        for step in CommitStep::ALL {
            assert_eq!(profile.commit(step).count, 1, "{profile}");
        }
        assert_eq!(profile.waited(Wait::Durable).count, times, "{profile}");
    }
}

#[test]
fn profiles_nest_and_end_with_their_call() {
    let db = Db::builder()
        .io_backend(IoBackend::Memory)
        .open("")
        .unwrap();
    let table = filled(&db);
    let get = || drop(table.get(b"none").unwrap());
    let (inner, outer) = profiled(|| {
        get();
        let ((), inner) = profiled(|| (0..3).for_each(|_| get()));
        // The profile does not include operations of another thread.
        thread::scope(|scope| drop(scope.spawn(get).join()));
        get();
        inner
    });
    assert_eq!((inner.gets(), outer.gets()), (3, 5));
    assert!(inner.total() <= outer.total());
    let panicking = || profiled(|| -> () { std::panic::panic_any("as planned") });
    catch_unwind(AssertUnwindSafe(panicking)).unwrap_err();
    get();
    let ((), profile) = profiled(get);
    assert_eq!(profile.gets(), 1);
    let mut sum = profile.clone();
    sum.add(&outer);
    assert_eq!(
        (sum.gets(), sum.total()),
        (6, profile.total() + outer.total())
    );
}
