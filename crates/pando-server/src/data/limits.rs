//! Up to which sizes OBJECT ENCODING shows the compact encodings of Redis, and how many entries of
//! a stream go together. CONFIG has them; they say nothing about how a collection lies here.

use pando_sync::atomic::{AtomicI64, Ordering};

use super::keyspace::ValueType;

/// What a parameter of CONFIG limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// `hash-max-listpack-entries`: fields.
    HashElements,
    /// `hash-max-listpack-value`: bytes of a field or value.
    HashBytes,
    /// `list-max-listpack-size`: elements, or below zero one of five lengths.
    ListSize,
    /// `set-max-intset-entries`: members that are integers.
    SetIntegers,
    /// `set-max-listpack-entries`: members.
    SetElements,
    /// `set-max-listpack-value`: bytes of a member.
    SetBytes,
    /// `zset-max-listpack-entries`: members.
    SortedSetElements,
    /// `zset-max-listpack-value`: bytes of a member.
    SortedSetBytes,
    /// `stream-node-max-entries`: entries of a stream that are trimmed together with `~`.
    StreamEntries,
}

/// The values that Redis begins with, in the order of [`Limit`].
const FIRST: [i64; 9] = [512, 64, -2, 512, 128, 64, 128, 64, 100];

/// The limits of all types. All accesses are Relaxed: no limit depends on another one.
#[derive(Debug)]
pub(crate) struct EncodingLimits([AtomicI64; 9]);

impl Default for EncodingLimits {
    fn default() -> Self {
        Self(FIRST.map(AtomicI64::new))
    }
}

impl EncodingLimits {
    pub(crate) fn get(&self, limit: Limit) -> i64 {
        self.0[limit as usize].load(Ordering::Relaxed)
    }

    /// Collections that are written from now on obey it.
    pub(crate) fn set(&self, limit: Limit, value: i64) {
        self.0[limit as usize].store(value, Ordering::Relaxed);
    }

    /// Returns those of one type.
    pub(crate) fn of(&self, value_type: ValueType) -> Limits {
        let of = |limit| usize::try_from(self.get(limit)).unwrap_or(0);
        let limits = |elements, bytes| Limits {
            elements: of(elements),
            bytes: of(bytes),
            integers: of(Limit::SetIntegers),
            list_size: self.get(Limit::ListSize),
        };
        match value_type {
            ValueType::Set => limits(Limit::SetElements, Limit::SetBytes),
            ValueType::SortedSet => limits(Limit::SortedSetElements, Limit::SortedSetBytes),
            _ => limits(Limit::HashElements, Limit::HashBytes),
        }
    }
}

/// The limits of one type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Most elements of a listpack.
    pub(crate) elements: usize,
    /// Most bytes of a string in a listpack.
    pub(crate) bytes: usize,
    /// Most members of an intset.
    pub(crate) integers: usize,
    /// Size of the longest listpack of a list; see [`Limits::of_list`].
    list_size: i64,
}

impl Limits {
    /// Returns the most elements and the most bytes of the listpack of a list.
    pub(crate) fn of_list(&self) -> (usize, u64) {
        /// Bytes of a listpack whose elements are limited.
        const SAFE: u64 = 8192;
        match self.list_size {
            0 => (1, SAFE),
            size if size > 0 => (usize::try_from(size).unwrap_or(usize::MAX), SAFE),
            -1 => (usize::MAX, 4096),
            -2 => (usize::MAX, 8192),
            -3 => (usize::MAX, 16_384),
            -4 => (usize::MAX, 32_768),
            _ => (usize::MAX, 65_536),
        }
    }
}
