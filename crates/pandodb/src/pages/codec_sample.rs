//! The compression of a store: the one that its superblock names, or that of most of its compressed
//! pages (decision 080).

use pando_device::{AnyFile, File, IoBuf};
use pando_format::cast::usize_of;
use pando_format::compression::CODEC_AT;
use pando_format::superblock::Superblock;
use pando_format::{Codec, Compression, PageId, StoredKind, StoredPage};

use crate::error::{Error, Result};
use crate::files::superblock::SUPERBLOCK;
use crate::options::check_compression;
use crate::pages::layout::Layout;

/// Number of pages that are looked at.
const SAMPLE: usize = 16;

/// Returns the compression that `superblock` names, None if it was written by a program that
/// records none.
pub(crate) fn known_compression(superblock: &Superblock) -> Result<Option<Compression>> {
    let known = superblock.compression.get();
    known.map_err(|damage| Error::corrupt(SUPERBLOCK, damage))
}

/// Returns the compression with which a store goes on if none is chosen.
///
/// # Errors
/// If this program does not know it, or was built without it.
pub(crate) fn compression_of(
    superblock: &Superblock,
    data: &AnyFile,
    layout: Layout,
    pages: impl Iterator<Item = (PageId, StoredPage)>,
) -> Result<Compression> {
    let known = known_compression(superblock)?;
    let compression = known.unwrap_or_else(|| compression_of_sample(data, layout, pages));
    check_compression(compression)?;
    Ok(compression)
}

/// Returns the compression that most of a sample of the compressed `pages` have; with the default
/// level if it has levels. The mapping tells which pages are compressed: their extents are shorter
/// than a page. So a store without such pages is not read.
///
/// Pages that cannot be read do not count, and nothing but the codec of new images depends on the
/// result.
pub(crate) fn compression_of_sample(
    data: &AnyFile,
    layout: Layout,
    pages: impl Iterator<Item = (PageId, StoredPage)>,
) -> Compression {
    let is_compressed = |stored: &StoredPage| {
        stored.kind == StoredKind::Page && stored.extent.blocks < layout.page_blocks()
    };
    let compressed = pages.map(|(_, stored)| stored).filter(is_compressed);
    let compressed: Vec<StoredPage> = compressed.collect();
    let step = compressed.len().div_ceil(SAMPLE).max(1);
    let mut counts = [0_usize; Codec::ALL.len()];
    let mut block = IoBuf::new(usize_of(layout.block_bytes));
    for stored in compressed.iter().step_by(step) {
        let offset = u64::from(stored.extent.block) * layout.block_bytes;
        if data.read_at(&mut block, offset).is_ok()
            && let Some(codec) = Codec::decode(block[CODEC_AT])
        {
            counts[usize::from(codec.encode())] += 1;
        }
    }
    let of = |codec: Codec| counts[usize::from(codec.encode())];
    [Compression::Lz4, Compression::ZSTD, Compression::Snappy]
        .into_iter()
        .filter(|how| of(how.codec()) > 0)
        .max_by_key(|how| of(how.codec()))
        .unwrap_or_default()
}
