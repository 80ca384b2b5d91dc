//! IDs of the entries of streams: a time in milliseconds, and a number within it.

use std::fmt;

/// Longest text that is looked at, as Redis has it.
const TEXT_BYTES_MAX: usize = 127;
/// Bytes of an ID in keys.
pub(crate) const ID_BYTES: usize = 16;
/// Longest text of an ID: two numbers of twenty digits, and what parts them.
pub(crate) const ID_TEXT_BYTES: usize = 41;

/// The ID of an entry, in the order of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct StreamId {
    pub(crate) ms: u64,
    pub(crate) sequence: u64,
}

impl StreamId {
    /// No entry has it, and none is before it.
    pub(crate) const ZERO: Self = Self::new(0, 0);
    pub(crate) const MAX: Self = Self::new(u64::MAX, u64::MAX);

    pub(crate) const fn new(ms: u64, sequence: u64) -> Self {
        Self { ms, sequence }
    }

    /// Returns its bytes, which are in the order of IDs.
    pub(crate) fn to_bytes(self) -> [u8; ID_BYTES] {
        let number = u128::from(self.ms) << 64 | u128::from(self.sequence);
        number.to_be_bytes()
    }

    /// Returns the ID that `bytes` begin with, and what is behind it.
    pub(crate) fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (ms, rest) = bytes.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let id = Self::new(u64::from_be_bytes(*ms), u64::from_be_bytes(*sequence));
        Some((id, rest))
    }

    /// Writes its text into `out`, and returns that; what formats by `Display` takes several times
    /// as long.
    pub(crate) fn text(self, out: &mut [u8; ID_TEXT_BYTES]) -> &[u8] {
        let (mut ms, mut sequence) = (itoa::Buffer::new(), itoa::Buffer::new());
        let ms = ms.format(self.ms).as_bytes();
        let sequence = sequence.format(self.sequence).as_bytes();
        let bytes = ms.len() + 1 + sequence.len();
        out[..ms.len()].copy_from_slice(ms);
        out[ms.len()] = b'-';
        out[ms.len() + 1..bytes].copy_from_slice(sequence);
        &out[..bytes]
    }

    /// Returns the one behind it.
    pub(crate) fn next(self) -> Option<Self> {
        match self.sequence.checked_add(1) {
            Some(sequence) => Some(Self::new(self.ms, sequence)),
            None => Some(Self::new(self.ms.checked_add(1)?, 0)),
        }
    }

    /// Returns the one before it.
    pub(crate) fn previous(self) -> Option<Self> {
        match self.sequence.checked_sub(1) {
            Some(sequence) => Some(Self::new(self.ms, sequence)),
            None => Some(Self::new(self.ms.checked_sub(1)?, u64::MAX)),
        }
    }

    /// Returns the ID that `text` is; `missing` is its second part if there is none.
    pub(crate) fn parse(text: &[u8], missing: u64) -> Option<Self> {
        match Self::parse_partial(text, missing)? {
            (id, true) => Some(id),
            (_, false) => None,
        }
    }

    /// As [`StreamId::parse`]. Also returns false if the second part is `*`, which is 0 then.
    pub(crate) fn parse_partial(text: &[u8], missing: u64) -> Option<(Self, bool)> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let Some(dash) = text.iter().position(|byte| *byte == b'-') else {
            return Some((Self::new(number(text)?, missing), true));
        };
        let (ms, sequence) = (number(&text[..dash])?, &text[dash + 1..]);
        match sequence {
            b"*" => Some((Self::new(ms, 0), false)),
            _ => Some((Self::new(ms, number(sequence)?), true)),
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.sequence)
    }
}

/// Returns the number that `text` is. As for Redis, blanks and a sign may come before it.
fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"+").unwrap_or(text);
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = char::from(*byte).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_read_as_redis_reads_them() {
        let parse = |text: &str| StreamId::parse(text.as_bytes(), 7);
        assert_eq!(parse("5"), Some(StreamId::new(5, 7)));
        assert_eq!(parse("5-3"), Some(StreamId::new(5, 3)));
        let largest = "18446744073709551615-18446744073709551615";
        assert_eq!(parse(largest), Some(StreamId::MAX));
        let mut text = [0; ID_TEXT_BYTES];
        assert_eq!(StreamId::MAX.text(&mut text), largest.as_bytes());
        assert_eq!(StreamId::ZERO.text(&mut text), b"0-0");
        for text in [
            "",
            "-",
            "+",
            "-1",
            "5-",
            "5--1",
            "5-*",
            "x",
            "18446744073709551616",
            "1-2-3",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        let partial = StreamId::parse_partial(b"5-*", 0);
        assert_eq!(partial, Some((StreamId::new(5, 0), false)));
        assert_eq!(parse(&"1".repeat(200)), None);
    }

    #[test]
    fn there_is_nothing_beyond_the_ends() {
        assert_eq!(
            (StreamId::MAX.next(), StreamId::ZERO.previous()),
            (None, None)
        );
        assert_eq!(StreamId::new(1, u64::MAX).next(), Some(StreamId::new(2, 0)));
        assert_eq!(
            StreamId::new(2, 0).previous(),
            Some(StreamId::new(1, u64::MAX))
        );
    }

    proptest! {
        #[test]
        fn bytes_are_ordered_as_ids(a: (u64, u64), b: (u64, u64)) {
            let (a, b) = (StreamId::new(a.0, a.1), StreamId::new(b.0, b.1));
            prop_assert_eq!(a.cmp(&b), a.to_bytes().cmp(&b.to_bytes()));
            let text = a.to_string();
            let mut bytes = [0; ID_TEXT_BYTES];
            prop_assert_eq!(a.text(&mut bytes), text.as_bytes());
            prop_assert_eq!(StreamId::parse(text.as_bytes(), 0), Some(a));
            let bytes = a.to_bytes();
            prop_assert_eq!(StreamId::split(&bytes), Some((a, &[][..])));
            prop_assert_eq!(a.next().and_then(StreamId::previous), a.next().map(|_| a));
        }
    }
}
