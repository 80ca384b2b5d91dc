//! Payloads of Redis: bytes, the version of the RDB format (2 bytes), and the CRC64 of both.
//!
//! They come from clients, so every function is total over any bytes.

mod crc64;
mod input;
mod intset;
mod listpack;
mod lzf;
mod output;
mod stream;
mod value;
mod ziplist;
mod zipmap;

pub(crate) use crc64::crc64_on;
pub(crate) use input::{Input, Refused};
pub(crate) use output::put_length;
#[cfg(feature = "scripts")]
pub(crate) use output::put_string;
pub(crate) use stream::{GroupValue, StreamValue, strings_of};
pub(crate) use value::{Elements, Value, begin_string, decode, put_collection, put_stream_value};
pub(crate) use value::{plain_string_of, put_string_value, stream_version};

/// Takes a string that was read; it may refuse it.
type Put<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Refused>;

/// The version that is written: that of Redis 7.0, which later ones take, too.
pub(crate) const VERSION: u16 = 10;
/// The version of hashes whose fields have deadlines: that of Redis 7.4.
pub(crate) const VERSION_OF_TIMED: u16 = 12;
/// The newest version that is taken: that of Redis 8.0.
pub(crate) const VERSION_MAX: u16 = 12;
/// Bytes behind the content.
pub(crate) const FOOTER_BYTES: usize = 10;

/// Marks a library of functions.
#[cfg(feature = "scripts")]
pub(crate) const FUNCTION: u8 = 245;
/// Marked one in versions before the first that was released.
#[cfg(feature = "scripts")]
pub(crate) const FUNCTION_BEFORE_RELEASE: u8 = 246;

/// Returns what is behind a content with this CRC64.
pub(crate) fn footer(sum: u64, version: u16) -> [u8; FOOTER_BYTES] {
    let version = version.to_le_bytes();
    let sum = crc64_on(sum, &version).to_le_bytes();
    let mut footer = [0; FOOTER_BYTES];
    footer[..2].copy_from_slice(&version);
    footer[2..].copy_from_slice(&sum);
    footer
}

/// Completes a payload.
pub(crate) fn seal(content: &mut Vec<u8>, version: u16) {
    let footer = footer(crc64_on(0, content), version);
    content.extend_from_slice(&footer);
}

/// Returns true if this footer is that of a content with this CRC64, of a version that is taken.
pub(crate) fn is_footer(found: &[u8], sum: u64) -> bool {
    let Some(version) = found.first_chunk() else {
        return false;
    };
    let version = u16::from_le_bytes(*version);
    version <= VERSION_MAX && found == footer(sum, version)
}

/// Returns the content of a payload; `None` if it is damaged or of a later version.
pub(crate) fn opened(payload: &[u8]) -> Option<&[u8]> {
    let end = payload.len().checked_sub(FOOTER_BYTES)?;
    let (content, footer) = payload.split_at(end);
    is_footer(footer, crc64_on(0, content)).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_those_of_redis() {
        // FUNCTION DUMP of redis-server 7.0 without libraries.
        let mut payload = Vec::new();
        seal(&mut payload, VERSION);
        assert_eq!(payload, b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda");
        assert_eq!(opened(&payload), Some(&b""[..]));
    }

    #[test]
    fn a_payload_with_any_bit_changed_is_refused() {
        let mut payload = b"\xf5\x03abc".to_vec();
        seal(&mut payload, VERSION);
        assert_eq!(opened(&payload), Some(&b"\xf5\x03abc"[..]));
        for bit in 0..payload.len() * 8 {
            let mut damaged = payload.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(opened(&damaged), None, "{bit}");
        }
        for end in 0..payload.len() {
            assert_eq!(opened(&payload[..end]), None);
        }
    }

    #[test]
    fn payloads_of_later_versions_are_refused() {
        for (version, is_taken) in [(1_u16, true), (11, true), (12, true), (13, false)] {
            let mut payload = Vec::new();
            seal(&mut payload, version);
            assert_eq!(opened(&payload).is_some(), is_taken, "{version}");
        }
    }
}
