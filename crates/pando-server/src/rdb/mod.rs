//! What files of Redis (`dump.rdb`) and the payloads of DUMP have in common, for whoever reads such
//! a file and hands its values to RESTORE.

mod commands;

use crate::dump::{self, Input};
pub use commands::{Part, commands};

/// Bytes behind the value of a payload: its version (2 bytes), and the CRC64 of all before that.
pub const FOOTER_BYTES: usize = dump::FOOTER_BYTES;

/// The newest version of the format that RESTORE takes: that of Redis 8.0.
pub const VERSION_MAX: u16 = dump::VERSION_MAX;

/// Returns the CRC64 of what has the sum `before`, and of `bytes` behind it; that of nothing is 0.
pub fn sum(before: u64, bytes: &[u8]) -> u64 {
    dump::crc64_on(before, bytes)
}

/// Returns what is behind a value of a file of this version to make it a payload: `value` is the
/// byte of its kind, and the value.
pub fn footer(value: &[u8], version: u16) -> [u8; FOOTER_BYTES] {
    dump::footer(dump::crc64_on(0, value), version)
}

/// Appends a length as a file has it.
pub fn put_length(out: &mut Vec<u8>, length: u64) {
    dump::put_length(out, length);
}

/// Returns the string that `encoded` is, if it has `most` bytes at most: with its length before it,
/// a number, or compressed. `None` if it is anything else.
pub fn string(encoded: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut input = Input::new(encoded, most);
    let string = input.string().ok()?;
    (input.is_empty() && string.len() <= most).then(|| string.into_owned())
}
