//! The superblock file: two slots, of which the newest valid one holds (decision 041).

use pando_device::{AnyFile, File, IoBuf};
use pando_format::VERSION;
use pando_format::superblock::{SLOT_BYTES, Superblock};

use crate::error::{Error, Result};

/// Name of the superblock file.
pub(crate) const SUPERBLOCK: &str = "superblock";

/// Why a slot of the superblock is of no use.
#[derive(Debug)]
pub(crate) struct BadSlot {
    /// What is wrong with it.
    pub(crate) what: String,
    /// The version of the format, if the slot is valid and this program does not read that version.
    version: Option<u32>,
}

/// Reads the newest valid slot of the superblock. A slot that is damaged or cannot be read is
/// logged.
///
/// # Errors
/// As [`newest`].
pub(crate) fn read_superblock(file: &AnyFile) -> Result<Superblock> {
    let slots = read_slots(file);
    for (number, slot) in slots.iter().enumerate() {
        if let Err(bad) = slot {
            tracing::warn!(
                error = bad.what,
                "slot {number} of the superblock is of no use"
            );
        }
    }
    newest(slots)
}

/// Reads the slots one by one: where one cannot be read, the other one is enough.
pub(crate) fn read_slots(file: &AnyFile) -> [std::result::Result<Superblock, BadSlot>; 2] {
    [0, SLOT_BYTES as u64].map(|offset| {
        let mut slot = IoBuf::new(SLOT_BYTES);
        file.read_at(&mut slot, offset).map_err(|error| BadSlot {
            what: error.to_string(),
            version: None,
        })?;
        Superblock::decode(&slot).map_err(|damage| BadSlot {
            what: damage.what,
            version: other_version(&slot),
        })
    })
}

/// Returns the newest of the valid slots.
///
/// # Errors
/// If neither is valid: [`Error::Version`] if one has a version that this program does not read, an
/// error for damage otherwise.
pub(crate) fn newest(slots: [std::result::Result<Superblock, BadSlot>; 2]) -> Result<Superblock> {
    match slots {
        [Ok(first), Ok(second)] if second.generation > first.generation => Ok(second),
        [Ok(slot), _] | [Err(_), Ok(slot)] => Ok(slot),
        [Err(first), Err(second)] => match first.version.or(second.version) {
            Some(found) => Err(Error::Version {
                found,
                known: VERSION,
            }),
            None => Err(Error::corrupt(
                SUPERBLOCK,
                format!("slot 0: {}; slot 1: {}", first.what, second.what),
            )),
        },
    }
}

/// Returns the version of a valid slot if this program does not read that version.
fn other_version(slot: &[u8]) -> Option<u32> {
    Superblock::version_of(slot).filter(|version| !Superblock::is_known(*version))
}

/// Writes both slots, one after the other: the first is durable before the second is written.
pub(crate) fn write_superblock(file: &AnyFile, superblock: &Superblock) -> Result<()> {
    let mut slot = IoBuf::new(SLOT_BYTES);
    slot.copy_from_slice(&superblock.encode());
    let read = Superblock::decode(&slot);
    assert_eq!(read.as_ref(), Ok(superblock), "what is written can be read");
    for offset in [0, SLOT_BYTES as u64] {
        file.write_at(&slot, offset)
            .map_err(Error::io("writing the superblock"))?;
        file.sync()
            .map_err(Error::io_fatal("syncing the superblock"))?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use pando_device::faulty::{CrashMode, Fault, FaultPlan, FaultyDevice, Operation};
    use pando_device::{AnyDevice, Create, Device, OpenOptions};
    use pando_format::superblock::StoredCompression;
    use pando_format::{Compression, Epoch, Lsn};

    pub(crate) fn superblock(generation: u64) -> Superblock {
        Superblock {
            version: pando_format::VERSION_BASE,
            generation: Epoch(generation),
            incarnation: 1,
            checkpoint_lsn: Lsn(0),
            page_bytes: 4096,
            block_bytes: 4096,
            segment_bytes: 1 << 16,
            next_tree: 16,
            mapping: 1,
            base_pages: 0,
            journal_bytes: 0,
            data_blocks: 0,
            identity: [1; 16],
            hash_key: [1, 2],
            compression: StoredCompression::of(Compression::Lz4),
        }
    }

    /// Returns the slots as an earlier process has left them: `slots[0]` was written but not
    /// synced.
    fn left(slots: [Option<u64>; 2]) -> FaultyDevice {
        let device = FaultyDevice::new(1);
        let any = AnyDevice::from(device.clone());
        let file = any
            .open(SUPERBLOCK, OpenOptions::create(Create::New))
            .unwrap();
        any.sync_directory().unwrap();
        file.allocate(0, 2 * SLOT_BYTES as u64).unwrap();
        for slot in [1, 0] {
            let bytes = slots[slot].map_or([7; SLOT_BYTES], |g| superblock(g).encode());
            file.write_at(&bytes, (slot * SLOT_BYTES) as u64).unwrap();
            if slot == 1 {
                file.sync().unwrap();
            }
        }
        device
    }

    fn read(device: &FaultyDevice) -> Result<Superblock> {
        let device = AnyDevice::from(device.clone());
        read_superblock(&device.open(SUPERBLOCK, OpenOptions::write()).unwrap())
    }

    /// Checks that one slot is valid wherever the process ends, and whichever of its writes are
    /// lost or torn.
    fn check(slots: [Option<u64>; 2], durable: u64) {
        let left = left(slots);
        let chosen = read(&left).unwrap();
        for (operation, nth) in [
            (Operation::Write, 1),
            (Operation::Sync, 1),
            (Operation::Write, 2),
            (Operation::Sync, 2),
            (Operation::Sync, 3),
        ] {
            let device = left.after_exit(1);
            device.fail(FaultPlan::once(operation, SUPERBLOCK, nth, Fault::Crash));
            let any = AnyDevice::from(device.clone());
            let file = any.open(SUPERBLOCK, OpenOptions::write()).unwrap();
            let done = write_superblock(&file, &chosen);
            assert_eq!(done.is_ok(), nth == 3);
            for seed in 0..50 {
                let after = device.after_crash(seed, CrashMode::TornSectors);
                let found = read(&after).map(|found| found.generation.0);
                let found = found.unwrap_or_else(|error| panic!("{slots:?}, {nth}: {error}"));
                assert!(found == chosen.generation.0 || found == durable && nth < 3);
            }
        }
    }

    #[test]
    fn one_slot_is_whole_wherever_a_superblock_that_was_read_is_written_again() {
        check([Some(5), Some(4)], 4);
        check([None, Some(4)], 4);
        check([Some(4), Some(4)], 4);
    }
}
