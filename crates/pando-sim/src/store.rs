//! The store under test, small enough that a few hundred commits evict pages, recycle log segments
//! and write checkpoints; and functions that read everything in it.

use pando_device::faulty::Random;
use pando_device::{AnyDevice, FaultyDevice};
use pando_sync::time::Duration;
use pandodb::{Builder, Compression, Db, Durability, VerifyReport};

use crate::failure::{Failure, Result, Unread, fail};
use crate::kind;
use crate::panics;
use crate::state::{Effect, Entry, State, owner, table_owner};

/// Number of frames of the pool: the allowed minimum.
const FRAMES: usize = 64;
/// Memory budget of the store.
const MEMORY_BYTES: u64 = 2 << 20;
/// Size of the chunks of large values: the minimum, so that values of a workload have several.
const CHUNK_BYTES: u64 = 4096;
/// Age at which snapshots go on on disk: with the next look at them.
const SETTLE_AFTER: Duration = Duration::ZERO;
/// Size of the log.
const LOG_BYTES: u64 = 1 << 20;

/// A table that belongs to no thread, used to test whether a store accepts writes.
pub const PROBE: &str = "probe";

/// How pages lie on disk. It is a part of the seed, so that the seed still determines a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Pages of one block.
    Plain,
    /// Compressed pages of four blocks of 4 KiB.
    Large,
    /// Compressed pages of eight blocks of 512 bytes.
    Small,
    /// Pages of 32 blocks of 512 bytes, compressed in another way each time the store opens.
    Changing,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Large, Self::Small, Self::Changing];
    const SHIFT: u32 = 32;

    /// Returns `seed` with this shape for its store.
    pub fn seed(self, seed: u64) -> u64 {
        (self as u64) << Self::SHIFT | seed & ((1 << Self::SHIFT) - 1)
    }

    /// Returns the shape that `seed` selects.
    pub fn of(seed: u64) -> Self {
        Self::ALL[(seed >> Self::SHIFT) as usize % Self::ALL.len()]
    }

    /// Applies the shape to `options`; `turn` tells the openings of a store apart.
    fn apply(self, options: Builder, turn: u64) -> Builder {
        let ways = [
            Compression::Lz4,
            Compression::None,
            Compression::Snappy,
            Compression::None,
        ];
        match self {
            Self::Plain => options,
            Self::Large => options.page_size(16384).compression(Compression::Lz4),
            Self::Small => options.block_size(512).compression(Compression::Lz4),
            Self::Changing => options
                .page_size(16384)
                .block_size(512)
                .compression(ways[(turn % 4) as usize]),
        }
    }
}

/// Returns the options of the store that `seed` selects, without the shape of its pages.
pub(crate) fn options(seed: u64) -> Builder {
    let mut random = Random::new(seed).part(0x0971);
    let durability = match random.below(3) {
        0 => Durability::Durable,
        1 => Durability::Periodic,
        _ => Durability::None,
    };
    // Drawn from a generator of its own, so that the choices of older seeds do not change.
    let discards = Random::new(seed).part(0xd15c).once_in(2);
    let options = Builder::default()
        .discard(discards)
        .max_memory(MEMORY_BYTES)
        .settle_snapshots_after(SETTLE_AFTER)
        .frames(FRAMES)
        .log_bytes(LOG_BYTES)
        .durability(durability)
        .discard(Random::new(seed).part(0x0d15).once_in(3))
        .chunk_size(CHUNK_BYTES);
    if random.once_in(4) {
        // All values of a workload lie in pages.
        return options;
    }
    options.chunk_values_over(200 + random.index(6000))
}

/// Returns true if the default durability of `seed`'s store promises that a returned commit
/// survives.
pub fn is_durable_by_default(seed: u64) -> bool {
    Random::new(seed).part(0x0971).below(3) == 0
}

/// Opens the store of `seed` on `device`.
///
/// # Errors
/// Those of the store.
pub fn open(seed: u64, device: &FaultyDevice) -> pandodb::Result<Db> {
    panics::watch(&format!("seed {seed}"));
    let turn = device.sync_points() + device.writes();
    let options = Shape::of(seed).apply(options(seed), turn);
    Db::open_device(options, AnyDevice::from(device.clone()))
}

/// Returns the entries of a table; checks their order, their count, and what the table counts.
///
/// # Errors
/// See [`Unread`].
pub fn read_table(db: &Db, name: &str) -> std::result::Result<Vec<Entry>, Unread> {
    let wrong = |what: String| Err(Unread::Wrong(Failure::new(what)));
    let Some(table) = db.existing_table(name) else {
        return wrong(format!("table {name} is listed and not there"));
    };
    let mut entries: Vec<Entry> = Vec::new();
    for entry in table.iter() {
        let (key, value) = entry.map_err(Unread::Error)?;
        if let Some((last, _)) = entries.last().filter(|(last, _)| *last >= key) {
            return wrong(format!("{name}: key {key:?} behind {last:?}"));
        }
        entries.push((key, value));
    }
    let (counted, found) = (table.len(), entries.len());
    if counted != found as u64 {
        return wrong(format!(
            "{name} counts {counted} entries, {found} are there"
        ));
    }
    kind::check(&table, &entries)?;
    Ok(entries)
}

/// Returns everything that a store holds, by owner; checks order and counts.
///
/// # Errors
/// A damaged page, a wrong count, an entry out of order or without an owner.
pub fn read_all(db: &Db, threads: usize) -> Result<Vec<State>> {
    let mut states = vec![State::default(); threads];
    for name in db.tables().into_iter().filter(|name| name != PROBE) {
        let entries = read_table(db, &name)
            .map_err(|unread| Failure::from(unread).within(format!("scanning {name}")))?;
        if let Some(owner) = table_owner(&name) {
            match states.get_mut(owner) {
                Some(state) => state.apply(&Effect::Create(name.clone())),
                None => return fail(format!("table {name} is nobody's")),
            }
        }
        for (key, value) in entries {
            let Some(state) = owner(&name, &key).and_then(|owner| states.get_mut(owner)) else {
                return fail(format!("{name}: {key:?} is nobody's"));
            };
            state.apply(&Effect::Put((name.clone(), key), value));
        }
    }
    Ok(states)
}

/// Checks every page, owner and count of a store that no process has open.
///
/// # Errors
/// What is damaged.
pub fn verify(device: &FaultyDevice) -> Result<()> {
    match VerifyReport::of_device(&AnyDevice::from(device.clone())) {
        Ok(report) if report.damages.is_empty() => Ok(()),
        Ok(report) => fail(format!(
            "verify: {:?}",
            &report.damages[..report.damages.len().min(6)]
        )),
        Err(error) => fail(format!("verify: {error}")),
    }
}
