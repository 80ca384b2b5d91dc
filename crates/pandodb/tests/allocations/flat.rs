//! Rounds of mixed load: after each round nothing is in use any longer, and memory does not grow.
//! `PANDO_MIXED_SECONDS` makes the rounds continue for that time.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use pando_sync::{thread, time};
use pandodb::{Batch, Builder, Db, Durability, IoBackend, Occupancy, Table, WriteOptions};

use crate::counted::{ALLOCATOR, block_on};

const NONE: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};
/// Number of keys, many times more than the pool holds.
const KEYS: u32 = 4_000;
const ROUNDS: u32 = 10;
/// Number of rounds before memory is compared.
const WARM: u32 = 4;
/// The bytes by which buffers may still grow. A page leaked by each operation would be a hundred
/// times as much.
const BYTES_MORE: u64 = 192 << 10;

fn key_of(number: u32) -> Vec<u8> {
    let mut key = (number % KEYS).to_be_bytes().to_vec();
    key.resize(if number.is_multiple_of(2) { 16 } else { 100 }, b'k');
    key
}

fn value_of(number: u32) -> Vec<u8> {
    vec![
        number as u8;
        if number.is_multiple_of(50) {
            9_000
        } else {
            700
        }
    ]
}

/// Does what one thread does in a round.
fn load(table: &Table, seed: u32) {
    let number = |turn: u32| turn.wrapping_mul(2_654_435_761).wrapping_add(seed * 977) >> 8;
    for turn in 0..150 {
        let at = number(turn);
        let key = key_of(at);
        match turn % 6 {
            0 => drop(table.get(&key).unwrap()),
            1 => table.put_with(&key, &value_of(at), NONE).unwrap(),
            2 => {
                let keys: Vec<Vec<u8>> = (0..40).map(|next| key_of(at + next * 31)).collect();
                let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                table.get_many_with(&keys, |_, _| ()).unwrap();
            }
            3 => {
                // One future is forgotten, and one is run to its end.
                let mut forgotten = table.get_async(&key_of(at + 7));
                let mut context = Context::from_waker(Waker::noop());
                let _: Poll<_> = Pin::new(&mut forgotten).poll(&mut context);
                block_on(table.get_async(&key)).unwrap();
            }
            4 => {
                // Some iterators are dropped early, with reads in flight.
                let taken = table.range(&key[..]..).take(at as usize % 60).count();
                assert!(taken < 60);
            }
            _ => {
                let mut batch = Batch::new();
                batch.put(table, &key, &value_of(at));
                batch.delete(table, &key_of(at + 1));
                batch.put(table, &key_of(at + 1), &value_of(at + 1));
                block_on(table.db().write_async(batch, NONE)).unwrap();
            }
        }
    }
}

fn options() -> Builder {
    let options = Db::builder().give_back_after(None);
    let options = options.max_memory(16 << 20).frames(160);
    options.queue_depth(16).io_backend(IoBackend::Auto)
}

pub(super) fn mixed_load_leaves_nothing_behind() {
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let place = place.unwrap();
    let db = options().open(place.path()).unwrap();
    let table = db.table("t").unwrap();
    for number in 0..KEYS {
        table
            .put_with(&key_of(number), &value_of(number), NONE)
            .unwrap();
    }
    let (mut warm, begun) = (0, time::now());
    let longer: u64 = std::env::var("PANDO_MIXED_SECONDS")
        .map_or(0, |seconds| seconds.parse().expect("a number of seconds"));
    let goes_on = |round: &u32| *round < ROUNDS || begun.elapsed().as_secs() < longer;
    for round in (0..).take_while(goes_on) {
        thread::scope(|scope| {
            for seed in 0..4 {
                let table = &table;
                scope.spawn(move || load(table, round * 4 + seed));
            }
        });
        while db.occupancy() != Occupancy::default() {
            thread::yield_now();
        }
        assert_eq!(table.len(), u64::from(KEYS));
        db.checkpoint().unwrap();
        let bytes = ALLOCATOR.bytes();
        if round < WARM {
            warm = warm.max(bytes);
        }
        assert!(
            bytes <= warm + BYTES_MORE,
            "{bytes} bytes after round {round}, {warm} before"
        );
    }
    db.close().unwrap();
}
