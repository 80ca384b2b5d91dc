//! Payloads of Redis: bytes, the version of the RDB format (2 bytes), and the CRC64 of both.
//!
//! They come from clients, so every function is total over any bytes.

mod crc64;
mod lzf;
mod string;

pub(crate) use string::{put_string, take_string};

/// The version that is written: that of Redis 7.0, which later ones take, too.
const VERSION: u16 = 10;
/// The newest version that is taken; what it holds of functions is the same in all.
const VERSION_MAX: u16 = 12;
/// Bytes behind the content.
const FOOTER_BYTES: usize = 10;

/// Marks a library of functions.
pub(crate) const FUNCTION: u8 = 245;
/// Marked one in versions before the first that was released.
pub(crate) const FUNCTION_BEFORE_RELEASE: u8 = 246;

/// Completes a payload.
pub(crate) fn seal(content: &mut Vec<u8>) {
    content.extend_from_slice(&VERSION.to_le_bytes());
    let sum = crc64::crc64(content);
    content.extend_from_slice(&sum.to_le_bytes());
}

/// Returns the content of a payload; `None` if it is damaged or of a later version.
pub(crate) fn opened(payload: &[u8]) -> Option<&[u8]> {
    let end = payload.len().checked_sub(FOOTER_BYTES)?;
    let (content, footer) = payload.split_at(end);
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let sum = crc64::crc64(&payload[..end + 2]).to_le_bytes();
    (version <= VERSION_MAX && footer[2..] == sum).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_those_of_redis() {
        // FUNCTION DUMP of redis-server 7.0 without libraries.
        let mut payload = Vec::new();
        seal(&mut payload);
        assert_eq!(payload, b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda");
        assert_eq!(opened(&payload), Some(&b""[..]));
    }

    #[test]
    fn a_payload_with_any_bit_changed_is_refused() {
        let mut payload = b"\xf5\x03abc".to_vec();
        seal(&mut payload);
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
            let mut payload = version.to_le_bytes().to_vec();
            payload.extend_from_slice(&crc64::crc64(&payload).to_le_bytes());
            assert_eq!(opened(&payload).is_some(), is_taken, "{version}");
        }
    }
}
