//! The damaged store: its newest checkpoint, as far as it can be read. It is only read.

use pando_device::{AnyDevice, Device, File, OpenOptions};
use pando_format::superblock::Superblock;
use pando_format::{Compression, Epoch};

use crate::error::{Error, Result};
use crate::files::names::CREATING;
use crate::files::superblock::{SUPERBLOCK, newest, read_slots};
use crate::files::whose::open_superblock;
use crate::options::{Budget, Builder};
use crate::pages::codec_sample::compression_of_sample;
use crate::pages::layout::{Layout, open_data, pool_of, space_keeper};
use crate::pages::store::Store;
use crate::salvage::mapping;
use crate::salvage::report::SalvageReport;
use crate::verify::walk::Damage;

/// What is loaded of a damaged store.
pub(super) struct DamagedStore {
    pub(super) store: Store,
    pub(super) superblock: Superblock,
    /// Number of its pages.
    pub(super) pages: usize,
    /// How its pages are stored, as far as this program can write that.
    pub(super) compression: Compression,
}

impl DamagedStore {
    /// Loads what can be read; adds damage to `report`.
    ///
    /// # Errors
    /// If no superblock can be read, or no data file.
    pub(super) fn load(device: &AnyDevice, report: &mut SalvageReport) -> Result<Self> {
        let names = device.list().map_err(Error::io("listing the directory"))?;
        if names.iter().any(|name| name == CREATING) {
            return Err(Error::InvalidOption {
                option: "dir",
                what: "the store in it was never finished: it holds nothing".into(),
            });
        }
        let superblock = newest_slot(device, report)?;
        let layout = Layout::of_superblock(&superblock)?;
        let data = open_data(device, OpenOptions::read(), layout.block_bytes)?;
        let words = mapping::read(device, &superblock, report);
        let mut budget = Budget::new(&Builder::default(), layout.page_size);
        // Any store can be read, whatever its budget was when it was created.
        budget.page_ids_max = u32::MAX as usize;
        // Nothing is ever allocated there, and pages beyond the end of the file cannot be read.
        let stored = data.len().unwrap_or(0) / layout.block_bytes;
        let blocks = superblock.data_blocks.min(stored).max(1);
        let space = space_keeper(&data, blocks, layout, device.statistics());
        let recorded = superblock.compression.get().ok().flatten();
        let compression =
            recorded.unwrap_or_else(|| compression_of_sample(&data, layout, words.pages()));
        let pool = pool_of(&budget, layout, Compression::None, device)?;
        let next = Epoch(superblock.generation.min(Epoch::LIMIT).0 + 1);
        pool.restore(words.pages(), next, superblock.checkpoint_lsn);
        let store = Store::new(
            device.clone(),
            data,
            pool,
            space,
            (superblock.version, superblock.next_tree),
            u64::MAX,
        );
        Ok(Self {
            store,
            superblock,
            pages: words.pages().count(),
            compression,
        })
    }
}

/// Returns the newest slot that can be read. The other one does not matter: it is equal, or that of
/// a checkpoint none of whose blocks were freed or overwritten.
fn newest_slot(device: &AnyDevice, report: &mut SalvageReport) -> Result<Superblock> {
    let file = open_superblock(device, OpenOptions::read())?;
    let slots = read_slots(&file);
    for (number, slot) in slots.iter().enumerate() {
        if let Err(bad) = slot {
            report.harmless.push(Damage {
                place: format!("{SUPERBLOCK}, slot {number}"),
                what: bad.what.clone(),
            });
        }
    }
    newest(slots)
}
