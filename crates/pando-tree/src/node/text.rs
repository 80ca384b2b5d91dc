//! Byte strings in words: comparison and copies, word by word.
//!
//! The caller passes the lengths. Bytes outside the page read as 0, and no copy is longer than a
//! page.

use std::cmp::Ordering;

use pando_format::cast::low_u32;

use crate::word::{Store, Word, load};

/// Returns up to 8 bytes as a little-endian word, padded with zeros.
#[inline]
pub fn word_of(chunk: &[u8]) -> u64 {
    if let Ok(bytes) = <[u8; 8]>::try_from(chunk) {
        return u64::from_le_bytes(bytes);
    }
    // Combines two halves that may overlap in equal bytes, since a copy of a few bytes costs a
    // call.
    let len = chunk.len();
    if let (Some(low), Some(high)) = (chunk.first_chunk::<4>(), chunk.last_chunk::<4>()) {
        let [low, high] = [low, high].map(|half| u64::from(u32::from_le_bytes(*half)));
        return low | high << (8 * (len - 4));
    }
    let byte = |at: usize| u64::from(chunk[at]) << (8 * at);
    match len {
        0 => 0,
        _ => byte(0) | byte(len / 2) | byte(len - 1),
    }
}

/// Returns the first four bytes, big-endian and padded with zeros, which compare as the bytes do.
#[inline]
pub fn head_of(suffix: &[u8]) -> u32 {
    if let Some(bytes) = suffix.first_chunk::<4>() {
        return u32::from_be_bytes(*bytes);
    }
    low_u32(word_of(suffix)).swap_bytes()
}

/// Compares the stored bytes from byte `start` of the page on with `text`, over the length of
/// `text`.
#[inline]
pub fn compare<W: Word>(words: &[W], start: usize, text: &[u8]) -> Ordering {
    let (whole, tail) = text.as_chunks::<8>();
    let mut at = start;
    for chunk in whole {
        let (stored, own) = (eight_at(words, at), u64::from_be_bytes(*chunk));
        if stored != own {
            return stored.cmp(&own);
        }
        at += 8;
    }
    if tail.is_empty() {
        return Ordering::Equal;
    }
    let behind = 8 * (8 - tail.len());
    (eight_at(words, at) >> behind).cmp(&(word_of(tail).swap_bytes() >> behind))
}

/// Returns the eight bytes from byte `start` of the page on, big-endian, which compare as the bytes
/// do.
#[inline]
fn eight_at<W: Word>(words: &[W], start: usize) -> u64 {
    word_at(words, start).swap_bytes()
}

/// Returns the eight bytes from byte `start` of the page on as a little-endian word.
#[inline]
fn word_at<W: Word>(words: &[W], start: usize) -> u64 {
    let (at, skip) = (start / 8, start % 8);
    let first = load(words, at) >> (8 * skip);
    match skip {
        0 => first,
        skip => first | load(words, at + 1) << (64 - 8 * skip),
    }
}

/// Compares the `len` stored bytes from byte `left` of the page on with those from byte `right` on.
pub fn compare_within<W: Word>(words: &[W], left: usize, right: usize, len: usize) -> Ordering {
    let len = len.min(words.len() * 8);
    for done in (0..len).step_by(8) {
        let behind = 8 * (8 - (len - done).min(8));
        let of = |start: usize| eight_at(words, start + done) >> behind;
        let order = of(left).cmp(&of(right));
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

/// Appends the `len` bytes from the start of word `at` on.
#[inline]
pub fn append_words<W: Word>(words: &[W], at: usize, len: usize, out: &mut Vec<u8>) {
    let len = len.min(words.len() * 8);
    let begin = out.len();
    out.resize(begin + len.next_multiple_of(8), 0);
    let source = words.get(at..).unwrap_or(&[]);
    let (chunks, _) = out[begin..].as_chunks_mut::<8>();
    for (chunk, word) in chunks.iter_mut().zip(source) {
        *chunk = word.get().to_le_bytes();
    }
    out.truncate(begin + len);
}

/// Appends the `len` bytes from byte `start` of the page on.
pub fn append<W: Word>(words: &[W], start: usize, len: usize, out: &mut Vec<u8>) {
    let len = len.min(words.len() * 8);
    let begin = out.len();
    out.resize(begin + len.next_multiple_of(8), 0);
    let (chunks, _) = out[begin..].as_chunks_mut::<8>();
    let mut at = start;
    for chunk in chunks {
        *chunk = word_at(words, at).to_le_bytes();
        at += 8;
    }
    out.truncate(begin + len);
}

/// Writes `text` from word `at` on, with the last word padded with zeros. Returns the word after
/// it.
pub fn write<P: Store + ?Sized>(page: &mut P, at: usize, text: &[u8]) -> usize {
    let (whole, tail) = text.as_chunks::<8>();
    let behind = at + whole.len();
    page.store_all(at, whole.iter().map(|chunk| u64::from_le_bytes(*chunk)));
    if tail.is_empty() {
        return behind;
    }
    page.store(behind, word_of(tail));
    behind + 1
}

/// Replaces `out` by the shortest key that is greater than `smaller` and not greater than
/// `greater`.
pub fn separate(smaller: &[u8], greater: &[u8], out: &mut Vec<u8>) {
    let bytes = common_prefix(smaller, greater) + 1;
    out.clear();
    out.extend_from_slice(&greater[..bytes.min(greater.len())]);
}

/// Returns the length of the common prefix in bytes.
pub fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(l, r)| l == r).count()
}
