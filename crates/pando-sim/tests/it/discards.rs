//! Free space is given to the file system and taken back, round after round, and the machine
//! crashes at syncs and writes in between.

use pando_device::faulty::Random;
use pando_device::{AnyDevice, FaultyDevice};
use pando_sim::crash::MODES;
use pando_sim::panics;
use pando_sim::store;
use pandodb::statistics::Ticker;
use pandodb::{Batch, Db, Durability, WriteOptions};

use crate::number;

const NONE: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};
const ROUNDS: u64 = 3;
const KEYS: u64 = 150;
/// Of each round, one key in this number stays, so that kept keys are spread over the file.
const KEPT_EACH: u64 = 5;
const VALUE_BYTES: usize = 40_000;

fn open(device: &FaultyDevice, turn: u64) -> pandodb::Result<Db> {
    // Every second store has its values in chunks.
    let chunks_over = [1 << 20, 8 << 10][turn as usize % 2];
    let options = Db::builder()
        .max_memory(4 << 20)
        .frames(256)
        .log_bytes(2 << 20)
        .chunk_size(16 << 10)
        .chunk_values_over(chunks_over)
        .durability(Durability::None)
        .discard(true);
    panics::watch(&format!("turn {turn}"));
    Db::open_device(options, AnyDevice::from(device.clone()))
}

/// A step of a life. Each step also commits its number.
#[derive(Debug, Clone, Copy)]
enum Step {
    Put(u64),
    Delete(u64),
    Checkpoint,
}

fn steps() -> Vec<Step> {
    let round = |round: u64| {
        let goes = move |key: &u64| key % KEPT_EACH != round % KEPT_EACH;
        let puts = (0..KEYS).map(Step::Put).chain([Step::Checkpoint]);
        let deletes = (0..KEYS).filter(goes).map(Step::Delete);
        // The second checkpoint frees what the first one still names.
        puts.chain(deletes).chain([Step::Checkpoint; 2])
    };
    (0..ROUNDS).flat_map(round).collect()
}

fn value(key: u64, step: usize) -> Vec<u8> {
    let mut random = Random::new(key << 32 | step as u64);
    let mut value = vec![0; VALUE_BYTES];
    value.fill_with(|| random.below(256) as u8);
    value
}

/// The progress of a life.
#[derive(Debug, Default, Clone, Copy)]
struct Done {
    /// Number of steps that returned.
    returned: usize,
    /// Number of steps before the last checkpoint.
    durable: usize,
    discarded: u64,
    taken_back: bool,
}

fn live(device: &FaultyDevice, turn: u64) -> Done {
    let mut done = Done::default();
    let Ok(db) = open(device, turn) else {
        return done;
    };
    let Ok(table) = db.table("t") else {
        return done;
    };
    let mut most = 0;
    for (step, what) in steps().into_iter().enumerate() {
        let mut batch = Batch::new();
        match what {
            Step::Put(key) => batch.put(&table, &key.to_be_bytes(), &value(key, step)),
            Step::Delete(key) => batch.delete(&table, &key.to_be_bytes()),
            Step::Checkpoint => {
                if db.checkpoint().is_err() {
                    break;
                }
                done.durable = step;
            }
        }
        batch.put(&table, b"step", &step.to_be_bytes());
        if db.write(&mut batch, NONE).is_err() {
            break;
        }
        done.returned = step + 1;
        let discarded = db.report().data_discarded_bytes;
        done.taken_back |= discarded < most;
        most = most.max(discarded);
    }
    done.discarded = db.statistics().get(Ticker::BlocksDiscarded);
    done
}

/// Checks that the store has the state after some number of steps, of which none is missing that
/// must be durable.
fn check(db: &Db, done: Done) {
    let table = db.table("t").unwrap();
    let last = table.get(b"step").unwrap();
    let count = last.map_or(0, |last| usize::from_be_bytes(last.try_into().unwrap()) + 1);
    assert!(
        (done.durable..=done.returned + 1).contains(&count),
        "{count}: {done:?}"
    );
    let mut twin = std::collections::BTreeMap::new();
    for (step, what) in steps().into_iter().take(count).enumerate() {
        match what {
            Step::Put(key) => _ = twin.insert(key, step),
            Step::Delete(key) => _ = twin.remove(&key),
            Step::Checkpoint => {}
        }
    }
    assert_eq!(table.len(), twin.len() as u64 + u64::from(count > 0));
    for (key, step) in twin {
        let found = table.get(&key.to_be_bytes()).unwrap();
        assert!(found == Some(value(key, step)), "{key} of step {step}");
    }
}

#[test]
fn a_crash_between_discards_and_what_takes_them_back_loses_nothing() {
    for turn in 0..2 {
        let whole = FaultyDevice::new(turn);
        let done = live(&whole, turn);
        assert_eq!(done.returned, steps().len());
        assert!(done.discarded > 1000 && done.taken_back, "{done:?}");
        let points = number("PANDO_CRASH_POINTS", 10).max(1);
        let spread = |all: u64| (1..=all).step_by((all / points).max(1) as usize);
        let syncs = spread(whole.sync_points()).map(|point| (point, true));
        let writes = spread(whole.writes()).map(|point| (point, false));
        for (point, at_sync) in syncs.chain(writes) {
            let device = FaultyDevice::new(turn);
            match at_sync {
                true => device.crash_at_sync(point),
                false => device.crash_after_writes(point),
            }
            let done = live(&device, turn);
            device.crash_now();
            // Trying one mode at many points covers more than trying all modes at few points.
            let mode = MODES[point as usize % MODES.len()];
            let after = device.after_crash(point, mode);
            let Ok(db) = open(&after, turn) else {
                assert_eq!(done.returned, 0, "{point} {at_sync} {mode:?}");
                continue;
            };
            check(&db, done);
            // Blocks that were holes are part of the file again.
            let table = db.table("more").unwrap();
            for key in 0..40 {
                let bytes = value(key, 0);
                table.put(&key.to_be_bytes(), &bytes).unwrap();
            }
            db.checkpoint().unwrap();
            check(&db, done);
            drop(table);
            db.close().unwrap();
            store::verify(&after).unwrap();
        }
    }
}
