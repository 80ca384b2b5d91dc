//! SETBIT and GETBIT. Bit 0 is the highest bit of the first byte.

use pando_resp::parse_integer;

use super::append::overwrite;
use crate::context::{Command, Context, Flags, Group, NewString, Run, replies};
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        since: "2.2.0",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        group: Group::Bitmap,
        summary: "Sets or clears the bit at an offset of the string value. Creates the key if it \
                  doesn't exist.",
        ..Command::write("setbit", 4, set_bit)
    },
    Command {
        since: "2.2.0",
        group: Group::Bitmap,
        summary: "Returns a bit value by offset.",
        ..Command::read("getbit", 3, get_bit)
    },
];

/// Returns argument `index` as the offset of a bit. With a `#` before it, which is for fields of
/// `field_bits` bits, it counts fields.
pub(crate) fn offset_at(
    context: &Context<'_>,
    index: usize,
    field_bits: Option<u64>,
) -> Result<u64, &'static str> {
    let text = context.argument(index);
    let (text, factor) = match (text, field_bits) {
        ([b'#', rest @ ..], Some(bits)) => (rest, bits),
        _ => (text, 1),
    };
    let number = parse_integer(text).and_then(|number| u64::try_from(number).ok());
    let offset = number.and_then(|number| number.checked_mul(factor));
    let offset = offset.filter(|offset| context.fits(offset / 8 + 1));
    offset.ok_or(replies::BIT_OFFSET)
}

/// Returns the mask of the bit at `offset` in its byte.
fn mask(offset: u64) -> u8 {
    0x80 >> (offset % 8)
}

fn set_bit(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let offset = match offset_at(context, 2, None) {
        Ok(offset) => offset,
        Err(text) => return context.fail(text),
    };
    let bit = match context.integer_at(3) {
        Ok(bit @ 0..=1) => bit == 1,
        _ => return context.fail("ERR bit is not an integer or out of range"),
    };
    let found = context.find_to_change(key)?;
    let (place, length) = (offset / 8, context.string_bytes(&found));
    let byte = context.part(key, &found, place..place + 1)?;
    let old = byte.first().copied().unwrap_or(0);
    let new = match bit {
        true => old | mask(offset),
        false => old & !mask(offset),
    };
    if new != old || length <= place {
        overwrite(context, key, &found, place, NewString::Bytes(&[new]))?;
        context.event(Class::String, "setbit", key);
    }
    context.integer(i64::from(old & mask(offset) != 0))
}

fn get_bit(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let offset = match offset_at(context, 2, None) {
        Ok(offset) => offset,
        Err(text) => return context.fail(text),
    };
    let found = context.read_partly(key)?;
    let place = offset / 8;
    let byte = context.part(key, &found, place..place + 1)?;
    let byte = byte.first().copied().unwrap_or(0);
    context.integer(i64::from(byte & mask(offset) != 0))
}
