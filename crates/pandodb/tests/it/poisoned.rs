//! A store after a failed write: nothing is written any longer, and reads go on.

use pando_device::FaultyDevice;
use pando_device::faulty::{Fault, FaultPlan, Operation};
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;
use pandodb::{Db, Durability, Error, WriteOptions};

use crate::fixture::{fill, padded_key};

const KEYS: u32 = 6_000;

/// Reads need frames, and help to write pages to get some. The write that fails may be one of
/// theirs, and it is none of their business: there are enough frames with clean pages.
#[test]
fn reads_go_on_while_a_store_is_poisoned_and_afterwards() {
    for turn in 0..8 {
        let device = FaultyDevice::new(turn);
        let options = Db::builder().max_memory(64 << 20).frames(256);
        let db = Db::open_device(options, device.clone().into()).unwrap();
        let table = db.table("t").unwrap();
        fill(&table, 0..KEYS, |number| {
            (padded_key(number), [number as u8; 1000])
        });
        db.checkpoint().unwrap();
        let is_poisoned = AtomicBool::new(false);
        thread::scope(|scope| {
            for reader in 0..3_u32 {
                let (table, is_poisoned) = (&table, &is_poisoned);
                scope.spawn(move || {
                    let mut rounds = 0;
                    while rounds < 2 || !is_poisoned.load(Ordering::Acquire) {
                        rounds += u32::from(is_poisoned.load(Ordering::Acquire));
                        for number in (reader..KEYS).step_by(7) {
                            let value = table.get(&padded_key(number));
                            assert!(value.unwrap().is_some(), "{number}");
                        }
                        let mut count = 0;
                        for entry in table.iter() {
                            entry.unwrap();
                            count += 1;
                        }
                        assert_eq!(count, KEYS);
                    }
                });
            }
            let none = WriteOptions::durability(Durability::None);
            device.fail(FaultPlan::sticky(Operation::Write, "data", 3, Fault::Io));
            let refused = (0..).find_map(|number: u32| {
                let key = padded_key(number.wrapping_mul(0x9e37_79b9) % KEYS);
                table.put_with(&key, &[9; 1000], none).err()
            });
            is_poisoned.store(true, Ordering::Release);
            assert!(
                matches!(refused, Some(Error::Poisoned { .. })),
                "{refused:?}"
            );
        });
    }
}
