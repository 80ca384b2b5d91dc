//! What OBJECT ENCODING shows of a list: `listpack` or `quicklist`, by Redis's rules.
//!
//! A listpack of Redis has at most 8 KiB, unless `list-max-listpack-size` says otherwise. Before
//! elements are added, their plain lengths are counted with what is there (`t_list.c` of Redis
//! 7.2). When elements are removed, a quicklist becomes a listpack again at half of that; here by
//! the length of the whole list, since there are no nodes; and only if all of its elements were
//! read.

use pando_resp::parse_integer;

use crate::context::Collection;
use crate::data::packed::{Encoding, Strings};

/// Length of a listpack without elements.
const EMPTY_BYTES: u64 = 7;

/// Makes a list a quicklist if it is too long for a listpack with `count` more elements, of `added`
/// bytes together.
pub(super) fn grow(list: &mut Collection, count: usize, added: u64) {
    let (elements_max, bytes_max) = list.limits.of_list();
    let is_long = list.len() + count > elements_max || added > bytes_max;
    if list.encoding == Encoding::Listpack && (is_long || !fits(list, bytes_max - added)) {
        list.encoding = Encoding::Quicklist;
    }
}

/// Makes a list from which something was removed a listpack if it is short enough.
pub(super) fn shrink(list: &mut Collection) {
    if list.encoding != Encoding::Quicklist {
        // Its elements need not be looked at.
        return;
    }
    let (elements_max, bytes_max) = list.limits.of_list();
    let is_known = list.elsewhere() == 0;
    if is_known && list.len() <= elements_max / 2 && fits(list, bytes_max / 2) {
        list.encoding = Encoding::Listpack;
    }
}

/// Decides on the encoding of a list that was made as a whole.
pub(in crate::commands) fn decide(list: &mut Collection) {
    let (elements_max, bytes_max) = list.limits.of_list();
    list.encoding = match list.len() <= elements_max && fits(list, bytes_max) {
        true => Encoding::Listpack,
        false => Encoding::Quicklist,
    };
}

/// Returns the number of bytes that are counted for an element that comes from another list: Redis
/// moves integers as such, and counts none.
pub(super) fn moved_bytes(element: &[u8]) -> u64 {
    match parse_integer(element) {
        Some(_) => 0,
        None => element.len() as u64,
    }
}

/// Returns true if a listpack of the list has at most `most` bytes.
fn fits(list: &Collection, most: u64) -> bool {
    listpack_fits(&list.strings, most)
}

fn listpack_fits(strings: &Strings, most: u64) -> bool {
    if listpack_bytes_max(strings) <= most {
        return true;
    }
    let mut bytes = EMPTY_BYTES;
    for element in strings.iter() {
        bytes += entry_bytes(element);
        if bytes > most {
            return false;
        }
    }
    bytes <= most
}

/// Returns a length that a listpack of these strings does not exceed, without looking at each one.
fn listpack_bytes_max(strings: &Strings) -> u64 {
    let bytes = strings.payload_bytes();
    // A string below 4 KiB takes at most two bytes more than in the payload, a longer one eight.
    let of_long = bytes / 4096 * 8;
    EMPTY_BYTES + bytes + strings.len() as u64 * 2 + of_long
}

/// Returns the length of an entry of a listpack: its kind, its bytes, and its length for walks
/// backwards.
fn entry_bytes(element: &[u8]) -> u64 {
    let length = element.len() as u64;
    let bytes = match parse_integer(element) {
        Some(0..=127) => 1,
        Some(-4096..=4095) => 2,
        Some(-32_768..=32_767) => 3,
        Some(-8_388_608..=8_388_607) => 4,
        Some(-2_147_483_648..=2_147_483_647) => 5,
        Some(_) => 9,
        None if length < 64 => 1 + length,
        None if length < 4096 => 2 + length,
        None => 5 + length,
    };
    let backwards = match bytes {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    };
    bytes + backwards
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Found;
    use crate::data::keyspace::ValueType;
    use crate::data::limits::EncodingLimits;
    use proptest::prelude::*;

    fn list(elements: &[&[u8]]) -> Collection {
        let limits = EncodingLimits::default().of(ValueType::List);
        let mut list = Collection::new(Found::default(), ValueType::List, limits);
        elements.iter().for_each(|of| list.strings.push(of));
        list
    }

    proptest! {
        #[test]
        fn no_listpack_is_longer_than_what_is_said_without_a_look(
            lengths in prop::collection::vec(
                prop_oneof![0..130_usize, 8180..8200_usize, 4090..4100_usize, 16_370..16_390_usize],
                0..9,
            ),
        ) {
            let mut strings = Strings::default();
            lengths.iter().for_each(|length| strings.push(&vec![b'x'; *length]));
            let exact: u64 = strings.iter().map(entry_bytes).sum();
            prop_assert!(EMPTY_BYTES + exact <= listpack_bytes_max(&strings));
        }
    }

    #[test]
    fn entries_have_the_lengths_of_a_listpack() {
        let cases: [(&[u8], u64); 14] = [
            (b"", 2),
            (b"0", 2),
            (b"127", 2),
            (b"128", 3),
            (b"-1", 3),
            (b"4096", 4),
            (b"-32769", 5),
            (b"8388608", 6),
            (b"2147483648", 10),
            (b"-0", 4),
            (&[b'x'; 63], 65),
            (&[b'x'; 64], 67),
            (&[b'x'; 125], 128),
            (&[b'x'; 126], 130),
        ];
        for (element, bytes) in cases {
            assert_eq!(entry_bytes(element), bytes, "{}", element.escape_ascii());
        }
        assert_eq!(entry_bytes(&[b'x'; 4096]), 4103);
    }

    #[test]
    fn a_list_is_a_listpack_up_to_its_length_and_again_at_half() {
        let kilobyte = [b'x'; 1000];
        // 8 x 1004 and 7 bytes.
        let mut long = list(&[kilobyte.as_slice(); 8]);
        grow(&mut long, 1, 8192 - 8039);
        assert_eq!(long.encoding, Encoding::Listpack);
        grow(&mut long, 1, 8192 - 8038);
        assert_eq!(long.encoding, Encoding::Quicklist);
        long.strings.keep(0..5);
        shrink(&mut long);
        assert_eq!(long.encoding, Encoding::Quicklist);
        long.strings.keep(0..4);
        shrink(&mut long);
        assert_eq!(long.encoding, Encoding::Listpack);
        let mut huge = list(&[]);
        grow(&mut huge, 1, u64::MAX);
        assert_eq!(huge.encoding, Encoding::Quicklist);
        let mut made = list(&[kilobyte.as_slice(); 9]);
        decide(&mut made);
        assert_eq!(made.encoding, Encoding::Quicklist);
        made.strings.keep(1..9);
        decide(&mut made);
        assert_eq!(made.encoding, Encoding::Listpack);
    }
}
