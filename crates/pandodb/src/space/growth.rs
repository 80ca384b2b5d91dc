//! The data file grows before its blocks run short: by whom it is asked for, and by how much
//! (decisions 044 and 082).

use pando_device::{Error as DeviceError, File, Lack};
use pando_space::BLOCKS_MAX;
use pando_sync::atomic::Ordering;

use crate::error::Error;
use crate::space::keeper::SpaceKeeper;

/// Smallest step by which the file grows, in bytes; on a full disk a larger one is tried in
/// quarters, down to this.
pub(super) const GROWTH_MIN_BYTES: u64 = 256 << 10;
/// The usual step is this fraction of a small file, so that what is free beside a load stays within
/// a seventh of what is used.
const GROWTH_SHARE_SMALL: u64 = 16;
/// That fraction counts up to a step of so many bytes.
const GROWTH_BYTES: u64 = 4 << 20;
/// Largest step, unless more is wanted.
const GROWTH_MAX_BYTES: u64 = 1 << 30;
/// The step is at least this fraction of the file: unused blocks count as space amplification.
const GROWTH_SHARE: u64 = 64;
/// Fraction of a small file that is kept free, so that it grows before anybody has to wait.
const LOW_WATER_SHARE_SMALL: u64 = 32;
/// The same for a large one.
const LOW_WATER_SHARE: u64 = 64;
/// Lower bound of the free bytes that are kept ready.
const LOW_WATER_MIN_BYTES: u64 = 256 << 10;
/// Free bytes up to which the fraction of a small file counts.
const LOW_WATER_BYTES: u64 = 1 << 20;
/// Upper bound of them.
const LOW_WATER_MAX_BYTES: u64 = 1 << 30;

/// What has been done for room on a full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MadeRoom {
    /// Blocks were freed that somebody could do without.
    Now,
    /// There is room that can be made when it is needed, or a checkpoint frees blocks soon.
    Later,
    /// There is nothing to be done.
    None,
}

impl SpaceKeeper {
    /// True if somebody waits for blocks.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Tells the thread that grows the file that `blocks` are wanted.
    pub(crate) fn want(&self, blocks: u64) {
        // Release: whoever takes the number back wakes the waiter that has registered before.
        self.wanted.fetch_max(blocks.max(1), Ordering::Release);
        self.growth.notify_all();
    }

    /// Tells the thread that grows the file that a run of `blocks` is wanted, at the end of a
    /// longer file.
    pub(crate) fn want_run(&self, blocks: u32) {
        self.run_wanted.fetch_max(blocks.into(), Ordering::Relaxed);
        self.want(blocks.into());
    }

    /// Number of blocks that are kept ready.
    pub(super) fn low_water(&self) -> u64 {
        self.low_water_of(self.space().blocks())
    }

    /// The same for a file of `blocks` blocks.
    pub(super) fn low_water_of(&self, blocks: u64) -> u64 {
        low_water_bytes(blocks * self.block_bytes()) / self.block_bytes()
    }

    /// True while the disk is known to be full.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// True while the file cannot grow, and a checkpoint is to make room.
    pub(crate) fn awaits_room(&self) -> bool {
        self.awaits_room.load(Ordering::Relaxed)
    }

    /// Notes whether the disk was found full; logs a change.
    pub(super) fn set_full(&self, full: bool) {
        // Relaxed: a hint, as in is_full.
        self.awaits_room.store(false, Ordering::Relaxed);
        // Relaxed: a hint, as in is_full.
        if self.full.swap(full, Ordering::Relaxed) != full {
            let data_bytes = self.space().blocks() * self.block_bytes();
            match full {
                true if self.is_too_long() => tracing::warn!(
                    data_bytes,
                    "the data file cannot grow: {}",
                    Lack::FileLength
                ),
                true => tracing::warn!(data_bytes, "the data file cannot grow: the disk is full"),
                false => tracing::info!(data_bytes, "the data file has room again"),
            }
        }
    }

    /// Returns the error of a refused put.
    pub(crate) fn full_error(&self) -> Error {
        let bytes = self.space().blocks() * self.block_bytes();
        let what = match self.is_too_long() {
            true => format!(
                "the data file has {bytes} bytes, and {}; delete keys or raise the limit (ulimit \
                 -f, LimitFSIZE)",
                Lack::FileLength
            ),
            false => format!(
                "the data file has {bytes} bytes and the disk has no more (or blocks of {} have no \
                 more numbers); delete keys or make room",
                self.block_bytes()
            ),
        };
        Error::Full { what }
    }

    fn is_too_long(&self) -> bool {
        // Relaxed: a hint for messages.
        self.is_too_long.load(Ordering::Relaxed)
    }

    /// Calls `f`, and does not grow the file meanwhile.
    pub(crate) fn without_growth(&self, f: impl FnOnce()) {
        let _sizing = self.sizing.lock();
        f();
    }

    /// Grows the file if somebody wants blocks, and wakes the waiters. Only one thread calls it:
    /// recovery, later the maintenance thread. If the disk is full, `make_room` is called, which
    /// may free blocks that somebody can do without, if its argument says that they are needed now.
    /// Blocks.
    pub(crate) fn grow_if_wanted(&self, committed: u64, make_room: impl FnMut(bool) -> MadeRoom) {
        let run = self.run_wanted.swap(0, Ordering::Relaxed);
        let wanted = self.wanted.swap(0, Ordering::Relaxed).max(run);
        let _sizing = self.sizing.lock();
        let low = self.low_water();
        let enough = run == 0 && self.has_available(wanted + low, committed);
        if wanted == 0 || enough {
            self.waiters().notify_all();
            return;
        }
        // Take back discarded blocks before the file grows.
        let is_enough = || run == 0 && self.has_available(wanted + low, committed);
        if self.take_back(is_enough) > 0 && (run > 0 || is_enough()) {
            self.set_full(false);
            self.waiters().notify_all();
            return;
        }
        let blocks = self.space().blocks();
        let bytes = blocks * self.block_bytes();
        let needed = match run {
            0 => self.missing(wanted + low, committed),
            _ => wanted + low,
        };
        let needed = needed * self.block_bytes();
        let mut step = growth_bytes(bytes).max(needed);
        loop {
            step = step
                .next_multiple_of(self.block_bytes())
                .min(bytes_nameable(blocks, self.block_bytes()));
            if step == 0 {
                // No block number is left: treat it as a full disk.
                self.make_room_on_full_disk((wanted, run), committed, make_room);
                break;
            }
            match self.file().allocate(bytes, step) {
                Ok(()) => {
                    assert_eq!(step % self.block_bytes(), 0, "the file has whole blocks");
                    assert_eq!(
                        self.space().blocks(),
                        blocks,
                        "one changes the length at a time"
                    );
                    self.space().grow(blocks + step / self.block_bytes());
                    self.set_full(false);
                    // Who asked meanwhile, mostly the same caller again, looks before it asks once
                    // more. Acquire: see `want`.
                    self.wanted.swap(0, Ordering::Acquire);
                    break;
                }
                Err(_) if step > GROWTH_MIN_BYTES => step /= 4,
                Err(error) => {
                    let is_too_long = matches!(
                        error,
                        DeviceError::Full {
                            lack: Lack::FileLength,
                            ..
                        }
                    );
                    // Relaxed: a hint for messages.
                    self.is_too_long.store(is_too_long, Ordering::Relaxed);
                    self.make_room_on_full_disk((wanted, run), committed, make_room);
                    break;
                }
            }
        }
        self.waiters().notify_all();
    }

    /// Calls `make_room` until `wanted` blocks can be reserved, or until it has made some if a
    /// `run` of blocks is wanted. Notes whether the disk is full: if there is room to be made, it
    /// is not.
    fn make_room_on_full_disk(
        &self,
        (wanted, run): (u64, u64),
        committed: u64,
        mut make_room: impl FnMut(bool) -> MadeRoom,
    ) {
        let is_short = || !self.has_available(wanted, committed);
        let made = loop {
            match make_room(run > 0 || is_short()) {
                MadeRoom::Now if run == 0 && is_short() => {}
                made => break made,
            }
        };
        self.set_full(made == MadeRoom::None);
        self.awaits_room
            .store(made == MadeRoom::Later, Ordering::Relaxed);
    }
}

/// Usual step in bytes by which a file of `bytes` bytes grows: a 16th up to 4 MiB, a 64th up to 1
/// GiB.
fn growth_bytes(bytes: u64) -> u64 {
    let small = (bytes / GROWTH_SHARE_SMALL).clamp(GROWTH_MIN_BYTES, GROWTH_BYTES);
    small.max(bytes / GROWTH_SHARE).min(GROWTH_MAX_BYTES)
}

/// Free bytes that are kept ready in a file of `bytes` bytes: a 32nd up to 1 MiB, a 64th up to 1
/// GiB.
fn low_water_bytes(bytes: u64) -> u64 {
    let small = (bytes / LOW_WATER_SHARE_SMALL).clamp(LOW_WATER_MIN_BYTES, LOW_WATER_BYTES);
    small.max(bytes / LOW_WATER_SHARE).min(LOW_WATER_MAX_BYTES)
}

/// Bytes by which a file of `blocks` blocks can grow before block numbers run out.
fn bytes_nameable(blocks: u64, block_bytes: u64) -> u64 {
    BLOCKS_MAX.saturating_sub(blocks) * block_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_share_of_the_file() {
        const KIB: u64 = 1 << 10;
        const MIB: u64 = 1 << 20;
        let steps = |mib: u64| {
            (
                growth_bytes(mib * MIB) / KIB,
                low_water_bytes(mib * MIB) / KIB,
            )
        };
        assert_eq!(steps(0), (256, 256));
        assert_eq!(steps(2), (256, 256));
        assert_eq!(steps(16), (1024, 512));
        assert_eq!(steps(64), (4096, 1024));
        assert_eq!(steps(256), (4096, 4096));
        assert_eq!(steps(1024), (16384, 16384));
        assert_eq!(steps(1 << 20), (1 << 20, 1 << 20));
        // Together at most a 10th from 16 MiB on, and the reserve besides.
        for mib in 16..4096 {
            let (step, low) = steps(mib);
            assert!(step + low <= mib * KIB / 10, "{mib} MiB");
        }
    }

    #[test]
    fn a_file_grows_until_its_blocks_have_no_more_numbers() {
        assert_eq!(bytes_nameable(0, 512), 2 << 40);
        assert_eq!(bytes_nameable(0, 4096), 16 << 40);
        assert_eq!(bytes_nameable(BLOCKS_MAX - 3, 512), 1536);
        assert_eq!(bytes_nameable(BLOCKS_MAX, 4096), 0);
    }
}
