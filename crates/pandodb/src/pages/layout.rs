//! The layout of pages in the data file: sizes of pages and blocks, the data file itself, and the
//! pool and allocator for it. Sizes are chosen at creation, and read from the superblock later.

use pando_device::{AnyDevice, AnyFile, Create, Device, Error as DeviceError, File, OpenOptions};
use pando_format::cast::{u32_of, usize_of};
use pando_format::catalogue::GARBAGE_ROOT;
use pando_format::superblock::Superblock;
use pando_format::{Compression, PageId, PageSize};
use pando_pool::{CheckImages, Content, Pool, PoolOptions};
use pando_space::{BLOCKS_MAX, Space, SpaceOptions};
use pando_stats::Statistics;
use pando_sync::Arc;

use crate::error::{Error, Result};
use crate::files::names::DATA;
use crate::files::superblock::SUPERBLOCK;
use crate::options::{Budget, Builder, is_block_size};
use crate::space::keeper::SpaceKeeper;

/// Sizes of pages and blocks on disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Bytes of a page in memory; on disk it takes as many blocks, or fewer if it is compressed.
    pub(crate) page_size: PageSize,
    /// Bytes of the unit of free space; a page has a whole number of them.
    pub(crate) block_bytes: u64,
}

impl Layout {
    /// Returns the layout that a superblock names.
    pub(crate) fn of_superblock(superblock: &Superblock) -> Result<Self> {
        let wrong = |what| Err(Error::corrupt(SUPERBLOCK, what));
        let Some(page_size) = PageSize::new(superblock.page_bytes as usize) else {
            return wrong(format!("page size {}", superblock.page_bytes));
        };
        if !is_block_size(superblock.block_bytes as usize) {
            return wrong(format!("block size {}", superblock.block_bytes));
        }
        Ok(Self {
            page_size,
            block_bytes: u64::from(superblock.block_bytes),
        })
    }

    /// Blocks of an uncompressed page.
    pub(crate) fn page_blocks(self) -> u32 {
        u32_of(self.page_size.bytes() as u64 / self.block_bytes)
    }
}

/// Returns a pool for pages of `layout`; it compresses new images with `compression`.
pub(crate) fn pool_of(
    budget: &Budget,
    layout: Layout,
    compression: Compression,
    device: &AnyDevice,
) -> Result<Pool> {
    let options = PoolOptions {
        page_size: layout.page_size,
        frames: budget.frames,
        page_ids_max: budget.page_ids_max,
        images: budget.images,
        block_bytes: usize_of(layout.block_bytes),
        compression,
        prepare_image: pando_tree::prepare_image,
        check_page: pando_tree::check_page,
        check_images: match cfg!(debug_assertions) || device.is_simulated() {
            true => CheckImages::All,
            false => CheckImages::Rebuilt,
        },
        content: Content::Checked,
        statistics: device.statistics(),
    };
    let pool = Pool::new(options).map_err(|error| Error::unmapped("frames", error))?;
    // The roots of the system trees.
    Ok(pool.keeping_below(PageId(GARBAGE_ROOT.0 + 1)))
}

/// Creates the data file, with direct I/O if possible, and chooses the sizes that `options` leave
/// open.
///
/// # Errors
/// [`Error::InvalidOption`] if direct I/O needs larger blocks than those that are given.
pub(crate) fn create_data(device: &AnyDevice, options: &mut Builder) -> Result<(AnyFile, Layout)> {
    let data = device
        .open(DATA, OpenOptions::create(Create::New).direct())
        .map_err(Error::io("opening the data file"))?;
    let alignment = data.alignment();
    options.choose_sizes(alignment);
    let page_size = options.check()?;
    let block_bytes = options.block_size.unwrap_or(PageSize::MIN) as u64;
    if !block_bytes.is_multiple_of(alignment as u64) {
        return Err(Error::InvalidOption {
            option: "block_size",
            what: format!(
                "{block_bytes}: direct I/O on this device is aligned to {alignment} bytes; blocks \
                 of {alignment} or more are needed"
            ),
        });
    }
    let layout = Layout {
        page_size,
        block_bytes,
    };
    Ok((data, layout))
}

/// Opens the data file, with direct I/O if its blocks allow that: the file may have been copied
/// from a device with smaller sectors.
pub(crate) fn open_data(device: &AnyDevice, how: OpenOptions, block_bytes: u64) -> Result<AnyFile> {
    let failed = |error: DeviceError| match error.is_not_found() {
        true => Error::corrupt(DATA, "the file is missing"),
        false => Error::io("opening the data file")(error),
    };
    let data = device.open(DATA, how.direct()).map_err(failed)?;
    if block_bytes.is_multiple_of(data.alignment() as u64) {
        return Ok(data);
    }
    device.open(DATA, how).map_err(failed)
}

/// Returns the allocator of a data file of `blocks` blocks; all of them are free.
pub(crate) fn space_keeper(
    file: &AnyFile,
    blocks: u64,
    layout: Layout,
    statistics: Arc<Statistics>,
) -> SpaceKeeper {
    let options = SpaceOptions {
        unit: layout.page_blocks(),
        ..SpaceOptions::default()
    };
    let space = Space::new(blocks.min(BLOCKS_MAX), options);
    SpaceKeeper::new(space, file.clone(), layout.block_bytes, statistics)
}
