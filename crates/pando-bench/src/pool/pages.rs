//! The pages that are read: images as the engine writes them, each with a word that is derived from
//! its id.

use pando_device::{AnyDevice, AnyFile, Create, Device, File, IoBuf, MemoryDevice, OpenOptions};
use pando_format::bytes::{put_u32, put_u64};
use pando_format::cast::u32_of_len;
use pando_format::page::{self, HEADER_WORDS, PageKind, WORD_EPOCH, WORD_KIND};
use pando_format::{Compression, Epoch, Extent, Lsn, PageId, PageSize, StoredKind, StoredPage};
use pando_pool::{CheckImages, Content, ImageFacts, Pool};
use pando_stats::Statistics;
use pando_sync::Arc;

use super::options::{PoolOptions, PoolWorkload};
use crate::error::{Error, Result};
use crate::phase::Observer;
use crate::random::mix;

/// Index of the word that is checked after a read.
pub(super) const VALUE_WORD: usize = HEADER_WORDS;

const NAME: &str = "pages";
const EPOCH: Epoch = Epoch(1);
/// Space of the device in addition to the pages.
const SPARE_BYTES: u64 = 1 << 20;
/// Size of the blocks in which the engine measures places.
const BLOCK_BYTES: usize = 4096;
/// Number of pages that are written between two reports of the progress.
const PROGRESS_PAGES: u32 = 1 << 12;

/// Returns the content of [`VALUE_WORD`] in a page.
pub(super) fn value_of(page: PageId) -> u64 {
    mix(u64::from(page.0) ^ 0x7061_6765)
}

/// A device with pages, and a pool that knows their places.
#[derive(Debug)]
pub(crate) struct Pages {
    /// In memory; holds the pages and little else.
    pub(crate) device: AnyDevice,
    /// Has page N at N times the size of a page.
    pub(crate) file: AnyFile,
    /// Knows the place of each page in `file`.
    pub(crate) pool: Pool,
}

impl Pages {
    /// Makes all pages; writes them only if the workload reads their bytes.
    pub(crate) fn new(
        options: &PoolOptions,
        page_size: PageSize,
        workload: PoolWorkload,
        observer: &mut dyn Observer,
    ) -> Result<Self> {
        let device = AnyDevice::from(MemoryDevice::new(options.size_bytes + SPARE_BYTES));
        let file = device
            .open(NAME, OpenOptions::create(Create::New))
            .map_err(Error::device("making the pages"))?;
        let pages = u32::try_from(options.pages()).expect("the options are checked");
        let mut stored = Vec::with_capacity(pages as usize);
        for page in (0..pages).map(PageId) {
            let tag = match workload {
                PoolWorkload::Null => 0,
                PoolWorkload::Memory => write(&file, page_size, page)?,
            };
            stored.push((page, stored_page(page, page_size, tag)));
            if page.0 % PROGRESS_PAGES == 0 {
                let share = f64::from(page.0) / f64::from(pages);
                observer.progress("making the pages", share, 0.0);
            }
        }
        let made = Pool::new(pando_pool::PoolOptions {
            page_size,
            frames: options.frames(),
            page_ids_max: pages as usize,
            images: 2,
            block_bytes: BLOCK_BYTES,
            compression: Compression::None,
            prepare_image: |_| ImageFacts::default(),
            check_page: check,
            check_images: CheckImages::All,
            content: match workload {
                PoolWorkload::Null => Content::Ignored,
                PoolWorkload::Memory => Content::Checked,
            },
            statistics: Arc::new(Statistics::new()),
        });
        let pool = made.map_err(|source| Error::Io {
            during: "mapping the frames".to_owned(),
            source,
        })?;
        pool.restore(stored.into_iter(), EPOCH, Lsn(0));
        Ok(Self { device, file, pool })
    }
}

/// Returns the offset of the page's first byte.
pub(super) fn offset_of(stored: StoredPage) -> u64 {
    u64::from(stored.extent.block) * BLOCK_BYTES as u64
}

fn stored_page(page: PageId, page_size: PageSize, tag: u32) -> StoredPage {
    let blocks = u32_of_len(page_size.bytes() / BLOCK_BYTES);
    StoredPage {
        kind: StoredKind::Page,
        extent: Extent {
            block: page.0 * blocks,
            blocks,
        },
        tag,
        names_chunks: false,
    }
}

/// Writes the image of `page`; returns the tag of its checksum.
fn write(file: &AnyFile, page_size: PageSize, page: PageId) -> Result<u32> {
    let mut image = IoBuf::new(page_size.bytes());
    put_u32(&mut image, 4, page.0);
    image[WORD_KIND * 8 + 4] = PageKind::Leaf.encode();
    put_u64(&mut image, WORD_EPOCH * 8, EPOCH.0);
    put_u64(&mut image, VALUE_WORD * 8, value_of(page));
    let checksum = page::checksum(&image);
    put_u32(&mut image, 0, checksum);
    let tag = StoredPage::tag_of(checksum);
    let offset = offset_of(stored_page(page, page_size, tag));
    file.write_at(&image, offset)
        .map_err(Error::device("writing the pages"))?;
    Ok(tag)
}

fn check(bytes: &[u8]) -> std::result::Result<(), &'static str> {
    match PageKind::decode(bytes[WORD_KIND * 8 + 4]) {
        Some(PageKind::Leaf) => Ok(()),
        _ => Err("is no leaf"),
    }
}
