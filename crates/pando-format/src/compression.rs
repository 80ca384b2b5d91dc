//! Compressed page images, and the header byte that says how a page is stored.
//!
//! ```text
//! stored image, a whole number of blocks and fewer of them than the page has:
//!   0..64     the header as it is, but for byte 14 (codec) and bytes 60..64
//!  60..64     bytes of the compressed body (n)
//!  64..64+n   the rest of the page, compressed
//!   ..        zeros up to the block
//! ```
//! An image that would save no block is stored as it is, with 0 in byte 14 and in 60..64, so a page
//! in memory does not show how it was stored. The checksum of an image covers the stored bytes,
//! including padding.
//!
//! Encoder and decoder own reusable buffers and codec states: nothing is allocated once they have
//! processed a page of each kind. They do no I/O. The decoder accepts any bytes: it writes at most
//! one page, into a buffer of its own, and never panics.

use crate::cast::u32_of_len;
use std::fmt;

use crate::Damage;
use crate::bytes::{put_u32, u32_at};
use crate::page::{HEADER_BYTES, PageSize};

/// Header byte that says how the page is stored.
pub const CODEC_AT: usize = 14;
/// Header bytes (u32) with the length of the compressed body.
pub const BODY_BYTES_AT: usize = 60;

/// How new images are stored. Images on disk tell themselves how they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Uncompressed.
    #[default]
    None,
    /// LZ4: fast in both directions.
    Lz4,
    /// Zstandard with a level from 1 to 22: denser and slower.
    Zstd(u8),
    /// Snappy.
    Snappy,
}

/// How the rest of a page after its header is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Codec {
    /// Uncompressed.
    Plain,
    /// An LZ4 block.
    Lz4,
    /// A Zstandard frame.
    Zstd,
    /// A Snappy block without framing.
    Snappy,
}

impl Codec {
    /// All codecs, in the order of their header bytes.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Lz4, Self::Zstd, Self::Snappy];

    /// Returns the header byte.
    pub fn encode(self) -> u8 {
        self as u8
    }

    /// Reads the header byte.
    pub fn decode(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }

    /// Returns the name: "none", "lz4", "zstd" or "snappy".
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Snappy => "snappy",
        }
    }
}

impl Compression {
    /// Zstandard with its default level.
    pub const ZSTD: Self = Self::Zstd(3);
    /// Highest level of [`Compression::Zstd`].
    pub const ZSTD_LEVEL_MAX: u8 = 22;

    /// Reads `none`, `lz4`, `zstd:N` (`zstd` alone: level 3) or `snappy`.
    ///
    /// # Errors
    /// A message that tells what is wrong with `text`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            let levels = Self::ZSTD_LEVEL_MAX;
            format!("'{text}': there are none, lz4, snappy and zstd:N with N from 1 to {levels}")
        };
        let chosen = match text.trim() {
            "none" => Self::None,
            "lz4" => Self::Lz4,
            "snappy" => Self::Snappy,
            "zstd" => Self::ZSTD,
            other => {
                let level = other.strip_prefix("zstd:").and_then(|n| n.parse().ok());
                Self::Zstd(level.ok_or_else(wrong)?)
            }
        };
        chosen.check().map_err(|_| wrong())?;
        if !chosen.is_built_in() {
            return Err(format!("'{text}': this program was built without zstd"));
        }
        Ok(chosen)
    }

    /// Returns whether this build contains the codec.
    pub fn is_built_in(self) -> bool {
        cfg!(feature = "zstd") || self.codec() != Codec::Zstd
    }

    /// Fails for a level that does not exist.
    ///
    /// # Errors
    /// The invalid level.
    pub fn check(self) -> Result<(), u8> {
        match self {
            Self::Zstd(level) if !(1..=Self::ZSTD_LEVEL_MAX).contains(&level) => Err(level),
            _ => Ok(()),
        }
    }

    /// Returns the codec of compressed images.
    pub fn codec(self) -> Codec {
        match self {
            Self::None => Codec::Plain,
            Self::Lz4 => Codec::Lz4,
            Self::Zstd(_) => Codec::Zstd,
            Self::Snappy => Codec::Snappy,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zstd(level) => write!(f, "zstd:{level}"),
            other => f.write_str(other.codec().name()),
        }
    }
}

/// Compresses pages. Reusable.
#[derive(Default)]
pub struct PageEncoder {
    /// Buffer for a compressed body, longer than any body that is worth storing.
    body: Vec<u8>,
    lz4: Option<lz4_flex::block::CompressTable>,
    snappy: Option<snap::raw::Encoder>,
    #[cfg(feature = "zstd")]
    zstd: Option<(u8, zstd::bulk::Compressor<'static>)>,
}

impl PageEncoder {
    /// Compresses `page` in place if that saves a block of `block_bytes` bytes. Returns the number
    /// of bytes to store: a whole number of blocks, the last one padded with zeros, or the whole
    /// unchanged page.
    ///
    /// # Panics
    /// Unless `page` is a page, of whole blocks, and not compressed.
    pub fn encode(&mut self, page: &mut [u8], block_bytes: usize, how: Compression) -> usize {
        let whole = page.len();
        assert!(whole >= PageSize::MIN && whole.is_multiple_of(block_bytes));
        assert_eq!(page[CODEC_AT], 0, "a page is compressed twice");
        if how == Compression::None || whole == block_bytes {
            return whole;
        }
        // Twice the page is more than any codec needs.
        self.body.resize(2 * whole, 0);
        let Some(bytes) = self.compress(&page[HEADER_BYTES..], how) else {
            return whole;
        };
        let end = HEADER_BYTES + bytes;
        let stored = end.next_multiple_of(block_bytes);
        if stored >= whole {
            return whole;
        }
        page[HEADER_BYTES..end].copy_from_slice(&self.body[..bytes]);
        // The bytes after the body still have their old content, which must not reach the disk.
        page[end..stored].fill(0);
        page[CODEC_AT] = how.codec().encode();
        put_u32(page, BODY_BYTES_AT, u32_of_len(bytes));
        stored
    }

    /// Compresses `input` into `body` and returns its length, `None` if the codec gives up.
    fn compress(&mut self, input: &[u8], how: Compression) -> Option<usize> {
        let Self { body, .. } = self;
        match how {
            Compression::None => None,
            Compression::Lz4 => {
                let table = self
                    .lz4
                    .get_or_insert_with(lz4_flex::block::CompressTable::large);
                lz4_flex::block::compress_into_with_table(input, body, table).ok()
            }
            Compression::Snappy => {
                let encoder = self.snappy.get_or_insert_with(snap::raw::Encoder::new);
                encoder.compress(input, body).ok()
            }
            #[cfg(feature = "zstd")]
            Compression::Zstd(level) => {
                if self.zstd.as_ref().is_none_or(|(known, _)| *known != level) {
                    let compressor = zstd::bulk::Compressor::new(i32::from(level)).ok()?;
                    self.zstd = Some((level, compressor));
                }
                let (_, compressor) = self.zstd.as_mut()?;
                compressor.compress_to_buffer(input, &mut body[..]).ok()
            }
            #[cfg(not(feature = "zstd"))]
            Compression::Zstd(_) => None,
        }
    }
}

impl fmt::Debug for PageEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageEncoder").finish_non_exhaustive()
    }
}

/// Decompresses pages. Reusable.
#[derive(Default)]
pub struct PageDecoder {
    page: Vec<u8>,
    snappy: Option<snap::raw::Decoder>,
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl PageDecoder {
    /// Returns the page of a stored image whose checksum was verified: the image itself if it is
    /// not compressed, otherwise the page in this decoder's buffer.
    ///
    /// # Errors
    /// [`Damage`] when length, codec or compressed bytes are not those of a page.
    ///
    /// # Panics
    /// When `image` is shorter than a header.
    pub fn decode<'a>(
        &'a mut self,
        image: &'a [u8],
        page_size: PageSize,
        block_bytes: usize,
    ) -> Result<&'a [u8], Damage> {
        let whole = page_size.bytes();
        let byte = image[CODEC_AT];
        let codec = Codec::decode(byte)
            .ok_or_else(|| Damage::new(format!("compression {byte} is unknown")))?;
        let bytes = u32_at(image, BODY_BYTES_AT) as usize;
        if codec == Codec::Plain {
            return match image.len() == whole && bytes == 0 {
                true => Ok(image),
                false => Err(Damage::new(format!(
                    "{} bytes that are not compressed; a page has {whole}",
                    image.len()
                ))),
            };
        }
        let body = (image.len() - HEADER_BYTES).checked_sub(bytes);
        if body.is_none_or(|padding| padding >= block_bytes) || image.len() >= whole {
            return Err(Damage::new(format!(
                "{bytes} compressed bytes in an image of {}; the page has {whole}",
                image.len()
            )));
        }
        self.page.resize(whole, 0);
        let (header, rest) = self.page.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&image[..HEADER_BYTES]);
        header[CODEC_AT] = 0;
        put_u32(header, BODY_BYTES_AT, 0);
        let body = &image[HEADER_BYTES..HEADER_BYTES + bytes];
        let restored = match codec {
            Codec::Lz4 => lz4_flex::block::decompress_into(body, rest).ok(),
            Codec::Snappy => {
                let decoder = self.snappy.get_or_insert_with(snap::raw::Decoder::new);
                decoder.decompress(body, rest).ok()
            }
            #[cfg(feature = "zstd")]
            Codec::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Decompressor::new().ok();
                }
                let decoder = self.zstd.as_mut();
                decoder.and_then(|decoder| decoder.decompress_to_buffer(body, rest).ok())
            }
            #[cfg(not(feature = "zstd"))]
            Codec::Zstd => return Err(Damage::new("this program was built without zstd")),
            Codec::Plain => None,
        };
        if restored != Some(rest.len()) {
            return Err(Damage::new(format!(
                "{bytes} bytes of {} are not what a page was compressed to",
                codec.name()
            )));
        }
        Ok(&self.page)
    }
}

impl fmt::Debug for PageDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageDecoder").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Compression; 5] = [
        Compression::Lz4,
        Compression::Snappy,
        Compression::Zstd(1),
        Compression::Zstd(3),
        Compression::Zstd(22),
    ];

    fn built_in() -> impl Iterator<Item = Compression> {
        ALL.into_iter().filter(|how| how.is_built_in())
    }

    /// Returns a page in which every `step`-th byte is random.
    fn page(bytes: usize, step: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut page: Vec<u8> = (0..bytes)
            .map(|index| {
                if index % step == 0 {
                    random.u8(..)
                } else {
                    (index / 64) as u8
                }
            })
            .collect();
        page[CODEC_AT] = 0;
        page[BODY_BYTES_AT..HEADER_BYTES].fill(0);
        page
    }

    #[test]
    fn pages_come_back_and_save_whole_blocks() {
        let mut encoder = PageEncoder::default();
        let mut decoder = PageDecoder::default();
        for how in built_in() {
            for (bytes, block) in [(4096, 512), (16384, 4096), (65536, 4096), (65536, 512)] {
                for step in [1, 2, 7, 1000] {
                    let before = page(bytes, step);
                    let mut image = before.clone();
                    let stored = encoder.encode(&mut image, block, how);
                    assert_eq!(stored % block, 0, "{how}");
                    // Random bytes need all blocks; repetitive ones need fewer.
                    assert!(step > 1 || stored == bytes, "{how}, {bytes}");
                    assert!(step < 1000 || stored < bytes, "{how}, {bytes}");
                    let size = PageSize::new(bytes).unwrap();
                    let after = decoder.decode(&image[..stored], size, block).unwrap();
                    assert!(after == before, "{how}");
                    if stored < bytes {
                        assert_eq!(Codec::decode(image[CODEC_AT]), Some(how.codec()));
                        let used = HEADER_BYTES + u32_at(&image, BODY_BYTES_AT) as usize;
                        assert!(image[used..stored].iter().all(|byte| *byte == 0));
                    }
                }
            }
        }
    }

    #[test]
    fn a_page_of_one_block_is_left_alone() {
        let mut image = page(4096, 1000);
        let before = image.clone();
        let stored = PageEncoder::default().encode(&mut image, 4096, Compression::Lz4);
        assert_eq!((stored, image), (4096, before));
    }

    #[test]
    fn names_are_read_back_and_others_are_refused() {
        for how in built_in().chain([Compression::None]) {
            assert_eq!(Compression::parse(&how.to_string()), Ok(how));
        }
        for text in ["", "gzip", "zstd:0", "zstd:23", "zstd:x", "zstd:300", "LZ4"] {
            let error = Compression::parse(text).unwrap_err();
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
        for codec in Codec::ALL {
            assert_eq!(Codec::decode(codec.encode()), Some(codec));
        }
        assert_eq!(Codec::decode(4), None);
    }

    #[test]
    fn what_is_not_exactly_a_page_is_damage() {
        let size = PageSize::new(16384).unwrap();
        let mut decoder = PageDecoder::default();
        for how in built_in() {
            let mut encoder = PageEncoder::default();
            // Decoded as a page of another size, the valid body is too short or too long.
            for bytes in [8192, 32768] {
                let mut image = page(bytes, 1000);
                let stored = encoder.encode(&mut image, 512, how);
                let result = decoder.decode(&image[..stored], size, 512);
                assert!(result.is_err(), "{how}: a page of {bytes}");
            }
            let mut image = page(16384, 9);
            let stored = encoder.encode(&mut image, 512, how);
            let image = &mut image[..stored];
            assert!(decoder.decode(image, size, 512).is_ok());
            let bytes = u32_at(image, BODY_BYTES_AT);
            for wrong in [0, bytes - 512, bytes + 512, u32::MAX, u32::MAX - 63] {
                put_u32(image, BODY_BYTES_AT, wrong);
                assert!(decoder.decode(image, size, 512).is_err(), "{how}: {wrong}");
            }
            put_u32(image, BODY_BYTES_AT, bytes);
            for codec in [0, 4, 255] {
                image[CODEC_AT] = codec;
                assert!(decoder.decode(image, size, 512).is_err(), "{how}: {codec}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(256)
        })]

        #[test]
        fn any_bytes_are_a_page_or_damage(
            codec in 0u8..5,
            blocks in 1usize..9,
            body in proptest::collection::vec(any::<u8>(), 0..4096),
            flips in proptest::collection::vec((0usize..4096, any::<u8>()), 0..4),
        ) {
            let size = PageSize::new(4096).unwrap();
            let mut decoder = PageDecoder::default();
            // Checks arbitrary bytes, and an image with a few random changes.
            let mut wild = vec![0; blocks * 512];
            let fits = body.len().min(wild.len() - HEADER_BYTES);
            wild[HEADER_BYTES..HEADER_BYTES + fits].copy_from_slice(&body[..fits]);
            wild[CODEC_AT] = codec;
            put_u32(&mut wild, BODY_BYTES_AT, fits as u32);
            let mut near = page(4096, 5);
            let how = ALL[usize::from(codec)];
            let stored = PageEncoder::default().encode(&mut near, 512, how);
            near.truncate(stored);
            for (at, byte) in flips {
                near[at % stored] ^= byte;
            }
            for image in [wild, near] {
                if let Ok(page) = decoder.decode(&image, size, 512) {
                    prop_assert_eq!(page.len(), 4096);
                    prop_assert_eq!(page[CODEC_AT], 0);
                }
            }
        }
    }
}
