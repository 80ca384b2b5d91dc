//! Keys: from the number of a key to its bytes, and back if that is possible.

use std::io::Write;

use crate::random::{mix, unmix};

/// Form of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyKind {
    /// A number with leading zeros.
    #[default]
    Decimal,
    /// Eight big-endian bytes, padded with the character 0.
    Binary,
    /// Sixteen bytes that look random.
    Random,
}

impl KeyKind {
    /// Returns its name in options and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Decimal => "decimal",
            Self::Binary => "binary",
            Self::Random => "random",
        }
    }
}

/// Length of a key that looks random.
const RANDOM_BYTES: usize = 16;

/// Converts numbers to keys.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    kind: KeyKind,
    bytes: usize,
    seed: u64,
}

impl Keys {
    /// Creates keys of `kind` with `bytes` bytes; `seed` matters only for those that look random.
    pub fn new(kind: KeyKind, bytes: usize, seed: u64) -> Self {
        Self { kind, bytes, seed }
    }

    /// Returns why `count` keys of this size would not be distinct, if they would not.
    pub fn check(&self, count: u64) -> Option<String> {
        let needed = match self.kind {
            KeyKind::Decimal => count.saturating_sub(1).max(1).ilog10() as usize + 1,
            KeyKind::Binary | KeyKind::Random => 8,
        };
        (self.bytes < needed).then(|| {
            format!(
                "{} bytes; at least {needed} tell {count} keys apart",
                self.bytes
            )
        })
    }

    /// Replaces `out` by the key of `number`.
    pub fn write(&self, number: u64, out: &mut Vec<u8>) {
        out.clear();
        match self.kind {
            KeyKind::Decimal => {
                write!(out, "{number:0width$}", width = self.bytes).expect("a vector takes all");
            }
            KeyKind::Binary => out.extend_from_slice(&number.to_be_bytes()),
            KeyKind::Random => {
                // The first half is a bijection of the number, so that keys differ.
                let first = mix(number ^ mix(self.seed));
                let mut text = [0; RANDOM_BYTES];
                text[..8].copy_from_slice(&first.to_be_bytes());
                text[8..].copy_from_slice(&mix(first ^ 1).to_be_bytes());
                out.extend_from_slice(&text);
            }
        }
        out.resize(self.bytes, b'0');
    }

    /// Replaces `out` by a key that no workload writes, right after that of `number`.
    pub(crate) fn write_missing(&self, number: u64, out: &mut Vec<u8>) {
        self.write(number, out);
        out.push(b'.');
    }

    /// Returns the number of a key.
    pub fn number(&self, key: &[u8]) -> Option<u64> {
        let first = || Some(u64::from_be_bytes(key.get(..8)?.try_into().ok()?));
        match self.kind {
            KeyKind::Decimal => std::str::from_utf8(key).ok()?.parse().ok(),
            KeyKind::Binary => first(),
            KeyKind::Random => Some(unmix(first()?) ^ mix(self.seed)),
        }
    }

    /// Returns true if a key with a higher number is greater.
    pub fn is_ordered(&self) -> bool {
        self.kind != KeyKind::Random
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyKind, Keys};

    fn key(kind: KeyKind, number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        Keys::new(kind, 16, 1).write(number, &mut out);
        out
    }

    #[test]
    fn keys_look_as_those_of_the_peers() {
        assert_eq!(key(KeyKind::Decimal, 42), b"0000000000000042");
        assert_eq!(key(KeyKind::Binary, 258), b"\0\0\0\0\0\0\x01\x0200000000");
        assert_eq!(key(KeyKind::Random, 1).len(), 16);
        assert_ne!(key(KeyKind::Random, 1), key(KeyKind::Random, 2));
    }

    /// The number of a key can be computed from the key.
    #[test]
    fn numbers_come_back() {
        for kind in [KeyKind::Decimal, KeyKind::Binary, KeyKind::Random] {
            let keys = Keys::new(kind, 16, 1);
            assert_eq!(keys.number(&key(kind, 123_456)), Some(123_456));
        }
    }

    #[test]
    fn keys_that_are_too_short_are_refused() {
        assert!(Keys::new(KeyKind::Decimal, 3, 1).check(1000).is_none());
        assert!(Keys::new(KeyKind::Decimal, 3, 1).check(1001).is_some());
        assert!(Keys::new(KeyKind::Binary, 7, 1).check(10).is_some());
    }
}
