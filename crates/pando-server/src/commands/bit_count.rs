//! BITCOUNT and BITPOS. A string in chunks is read chunk by chunk.

use std::ops::Range;

use crate::context::parts::Gathered;
use crate::context::{Command, Context, Flags, Group, Run, replies};
use crate::data::ones;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        since: "2.6.0",
        flags: Flags::READONLY,
        group: Group::Bitmap,
        complexity: "O(N)",
        summary: "Counts the number of set bits (population counting) in a string.",
        ..Command::read("bitcount", -2, bit_count)
    },
    Command {
        since: "2.8.7",
        flags: Flags::READONLY,
        group: Group::Bitmap,
        complexity: "O(N)",
        summary: "Finds the first set (1) or clear (0) bit in a string.",
        ..Command::read("bitpos", -3, bit_position)
    },
];

/// A range as it was given: from one place to another, both included; negative places count from
/// the end.
#[derive(Debug, Clone, Copy)]
struct Places {
    start: i64,
    end: i64,
    /// They are places of bits, not of bytes.
    of_bits: bool,
}

impl Places {
    const ALL: Self = Self {
        start: 0,
        end: -1,
        of_bits: false,
    };

    /// Reads arguments from `index` on: a start, an end if there is one, and a unit.
    fn parse(context: &Context<'_>, index: usize) -> Result<Self, &'static str> {
        let start = context.integer_at(index)?;
        let end = match context.count() > index + 1 {
            true => context.integer_at(index + 1),
            false => Ok(Self::ALL.end),
        };
        let of_bits = match context.count() > index + 2 {
            true if context.is(index + 2, "bit") => Ok(true),
            true if context.is(index + 2, "byte") => Ok(false),
            true => Err(replies::SYNTAX),
            false => Ok(false),
        };
        // Of two errors BITCOUNT shows that of the end, BITPOS that of the unit.
        if of_bits.is_err() && context.command.name == "bitpos" {
            return Err(replies::SYNTAX);
        }
        Ok(Self {
            start,
            end: end?,
            of_bits: of_bits?,
        })
    }

    /// Returns the range of these bits in a string of `bytes` bytes.
    fn bits(self, bytes: u64) -> Range<u64> {
        let unit = if self.of_bits { 1 } else { 8 };
        let total = i64::try_from(bytes * 8 / unit).unwrap_or(i64::MAX);
        let absolute = |place: i64| match place {
            0.. => place,
            _ => total.saturating_add(place).max(0),
        };
        let (start, end) = (absolute(self.start), absolute(self.end).min(total - 1));
        match (u64::try_from(start), u64::try_from(end)) {
            (Ok(start), Ok(end)) if start <= end => start * unit..(end + 1) * unit,
            _ => 0..0,
        }
    }
}

/// Returns the range of the bytes that have these bits.
fn bytes_of(bits: &Range<u64>) -> Range<u64> {
    bits.start / 8..bits.end.div_ceil(8)
}

/// Returns `byte`, which lies at `place`, without its bits that are not in `bits`.
fn masked(byte: u8, place: u64, bits: &Range<u64>) -> u8 {
    let first = bits.start.saturating_sub(place * 8).min(8);
    let after = (place * 8 + 8).saturating_sub(bits.end).min(8);
    let from_first = u8::try_from(0xff_u32 >> first).unwrap_or(0);
    let before_end = u8::try_from(0xff_u32 << after & 0xff).unwrap_or(0);
    byte & from_first & before_end
}

/// Counts the bits of `piece`, which lies at `offset`, that are in `bits`.
fn count(piece: &[u8], offset: u64, bits: &Range<u64>) -> u64 {
    let Some((last, rest)) = piece.split_last() else {
        return 0;
    };
    let at_end = masked(*last, offset + rest.len() as u64, bits).count_ones();
    let Some((first, between)) = rest.split_first() else {
        return at_end.into();
    };
    let at_start = masked(*first, offset, bits).count_ones();
    ones::count(between) + u64::from(at_start + at_end)
}

fn bit_count(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let places = match context.count() {
        2 => Ok(Places::ALL),
        4 | 5 => Places::parse(context, 2),
        _ => Err(replies::SYNTAX),
    };
    let places = match places {
        Ok(places) => places,
        Err(text) => return context.fail(text),
    };
    let found = context.read_partly(key)?;
    let is_backward = places.start < 0 && places.end < 0 && places.start > places.end;
    let bits = match is_backward {
        true => 0..0,
        false => places.bits(context.string_bytes(&found)),
    };
    let mut add = |gathered: &mut Gathered, offset, piece: &[u8]| {
        gathered.number += count(piece, offset, &bits);
        false
    };
    let gathered = context.gather(key, &found, bytes_of(&bits), &mut add)?;
    context.integer(i64::try_from(gathered.number).unwrap_or(i64::MAX))
}

/// Returns the place of the first bit in `bits` that is set in `piece`, or is not, as `wanted`
/// says; `piece` lies at `offset`.
fn first(piece: &[u8], offset: u64, bits: &Range<u64>, wanted: bool) -> Option<u64> {
    let flip = if wanted { 0 } else { 0xff };
    let places = (offset..).zip(piece);
    let mut of_wanted = places.map(|(place, byte)| (place, masked(byte ^ flip, place, bits)));
    let (place, byte) = of_wanted.find(|(_, byte)| *byte != 0)?;
    Some(place * 8 + u64::from(byte.leading_zeros()))
}

fn bit_position(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let wanted = match context.integer_at(2) {
        Ok(bit @ 0..=1) => bit == 1,
        Ok(_) => return context.fail("ERR The bit argument must be 1 or 0."),
        Err(text) => return context.fail(text),
    };
    let places = match context.count() {
        3 => Ok(Places::ALL),
        4..=6 => Places::parse(context, 3),
        _ => Err(replies::SYNTAX),
    };
    let places = match places {
        Ok(places) => places,
        Err(text) => return context.fail(text),
    };
    let found = context.read_partly(key)?;
    if found.row.is_none() {
        return context.integer(if wanted { -1 } else { 0 });
    }
    let bits = places.bits(context.string_bytes(&found));
    let mut look = |gathered: &mut Gathered, offset, piece: &[u8]| {
        let place = first(piece, offset, &bits, wanted);
        // 0 is no place: nothing was found so far.
        gathered.number = place.map_or(0, |place| place + 1);
        place.is_some()
    };
    let gathered = context.gather(key, &found, bytes_of(&bits), &mut look)?;
    let position = match gathered.number {
        // Behind a string of ones that is looked at to its end, there are zeros.
        0 if !wanted && context.count() < 5 && !bits.is_empty() => bits.end.cast_signed(),
        0 => -1,
        after => after.cast_signed() - 1,
    };
    context.integer(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_counted_as_bits_one_by_one() {
        let string = [
            0xa5, 0xff, 0x00, 0x3c, 0x81, 0x7e, 0xff, 0x01, 0x80, 0xf0, 0x0f, 0x55,
        ];
        let is_set = |bit: usize| string[bit / 8] & 0x80 >> (bit % 8) != 0;
        for start in 0..string.len() * 8 {
            for end in start + 1..=string.len() * 8 {
                let bits = start as u64..end as u64;
                let bytes = start / 8..end.div_ceil(8);
                let piece = &string[bytes.clone()];
                let ones = (start..end).filter(|bit| is_set(*bit)).count() as u64;
                assert_eq!(count(piece, bytes.start as u64, &bits), ones, "{bits:?}");
                for wanted in [false, true] {
                    let place = (start..end).find(|bit| is_set(*bit) == wanted);
                    let place = place.map(|bit| bit as u64);
                    let found = first(piece, bytes.start as u64, &bits, wanted);
                    assert_eq!(found, place, "{wanted} {bits:?}");
                }
            }
        }
    }

    #[test]
    fn places_are_cut_as_in_redis() {
        let bits = |start, end, of_bits| {
            Places {
                start,
                end,
                of_bits,
            }
            .bits(3)
        };
        assert_eq!(bits(0, -1, false), 0..24);
        assert_eq!(bits(1, 1, false), 8..16);
        assert_eq!(bits(-2, 100, false), 8..24);
        assert_eq!(bits(5, 9, true), 5..10);
        assert_eq!(bits(-3, -1, true), 21..24);
        assert_eq!(bits(2, 1, false), 0..0);
        assert_eq!(bits(9, 9, false), 0..0);
        assert_eq!(bits(i64::MIN, i64::MAX, true), 0..24);
        assert_eq!(Places::ALL.bits(0), 0..0);
    }
}
