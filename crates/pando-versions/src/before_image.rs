//! What a version holds: the value that a batch has replaced.
//!
//! ```text
//! kind: 1 | if the key was cut: its length: 4, LE, and the key | what the kind says
//! ```

use pando_format::cast::u32_of_len;

const ABSENT: u8 = 0;
const BYTES: u8 = 1;
const OVERFLOW: u8 = 2;
const CHUNKS: u8 = 3;
const CHUNKS_IN_OVERFLOW: u8 = 4;

/// What a batch has replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeforeImage<'a> {
    /// The key did not exist.
    Absent,
    /// The value itself.
    Bytes(&'a [u8]),
    /// The value lies in overflow pages: their header, as the leaf had it.
    Overflow(&'a [u8]),
    /// The value lies in chunks: its blob reference.
    Chunks(&'a [u8]),
    /// The value lies in chunks, and its blob reference in overflow pages: their header.
    ChunksInOverflow(&'a [u8]),
}

impl<'a> BeforeImage<'a> {
    fn kind(self) -> u8 {
        match self {
            Self::Absent => ABSENT,
            Self::Bytes(_) => BYTES,
            Self::Overflow(_) => OVERFLOW,
            Self::Chunks(_) => CHUNKS,
            Self::ChunksInOverflow(_) => CHUNKS_IN_OVERFLOW,
        }
    }

    fn bytes(self) -> &'a [u8] {
        match self {
            Self::Absent => &[],
            Self::Bytes(bytes)
            | Self::Overflow(bytes)
            | Self::Chunks(bytes)
            | Self::ChunksInOverflow(bytes) => bytes,
        }
    }

    /// Replaces `out` by the value of a version. `cut` is the whole key, if the version's has only
    /// its beginning.
    pub(crate) fn encode(self, cut: Option<&[u8]>, out: &mut Vec<u8>) {
        out.clear();
        out.push(self.kind());
        if let Some(key) = cut {
            out.extend_from_slice(&u32_of_len(key.len()).to_le_bytes());
            out.extend_from_slice(key);
        }
        out.extend_from_slice(self.bytes());
    }

    /// Returns what the value of a version says, and the whole key if that was cut. None for bytes
    /// that are no such value.
    pub(crate) fn decode(value: &'a [u8], is_cut: bool) -> Option<(Self, Option<&'a [u8]>)> {
        let (kind, mut rest) = value.split_first()?;
        let mut key = None;
        if is_cut {
            let (len, behind) = rest.split_first_chunk::<4>()?;
            let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
            let (whole, behind) = behind.split_at_checked(len)?;
            (key, rest) = (Some(whole), behind);
        }
        let image = match *kind {
            ABSENT => Self::Absent,
            BYTES => Self::Bytes(rest),
            OVERFLOW => Self::Overflow(rest),
            CHUNKS => Self::Chunks(rest),
            CHUNKS_IN_OVERFLOW => Self::ChunksInOverflow(rest),
            _ => return None,
        };
        Some((image, key))
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_read_as_it_was_written() {
        let images = [
            BeforeImage::Absent,
            BeforeImage::Bytes(b""),
            BeforeImage::Bytes(b"value"),
            BeforeImage::Overflow(b"header"),
            BeforeImage::Chunks(b"reference"),
            BeforeImage::ChunksInOverflow(b"header"),
        ];
        let mut value = Vec::new();
        for image in images {
            for cut in [None, Some(&b""[..]), Some(b"a long key")] {
                image.encode(cut, &mut value);
                let decoded = BeforeImage::decode(&value, cut.is_some());
                assert_eq!(decoded, Some((image, cut)));
            }
        }
        assert_eq!(BeforeImage::decode(&[], false), None);
        assert_eq!(BeforeImage::decode(&[9], false), None);
        assert_eq!(BeforeImage::decode(&[BYTES, 9, 0, 0, 0], true), None);
    }
}
