//! BITFIELD and BITFIELD_RO: integers of any width within a string.
//!
//! All fields of a command lie in one part of its string, which is read once, changed in memory and
//! written once.

use super::append::overwrite;
use super::bit::offset_at;
use crate::context::{Command, Context, Flags, Group, Interrupted, NewString, Run, replies};
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        since: "3.2.0",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        group: Group::Bitmap,
        complexity: "O(1) for each subcommand specified",
        summary: "Performs arbitrary bitfield integer operations on strings.",
        ..Command::write("bitfield", -2, bit_field)
    },
    Command {
        since: "6.0.0",
        group: Group::Bitmap,
        complexity: "O(1) for each subcommand specified",
        summary: "Performs arbitrary read-only bitfield integer operations on strings.",
        ..Command::read("bitfield_ro", -2, bit_field_read)
    },
];

/// Width and sign of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FieldType {
    is_signed: bool,
    /// 1 to 64, or 1 to 63 without a sign.
    bits: u64,
}

/// What happens to a number that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// What is done with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

#[derive(Debug, Clone, Copy)]
struct Step {
    of: FieldType,
    /// Of the first bit.
    offset: u64,
    action: Action,
    overflow: Overflow,
}

impl FieldType {
    fn parse(text: &[u8]) -> Option<Self> {
        let (is_signed, digits) = match text {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return None,
        };
        let most = if is_signed { 64 } else { 63 };
        let bits = pando_resp::parse_integer(digits).and_then(|bits| u64::try_from(bits).ok());
        let bits = bits.filter(|bits| (1..=most).contains(bits))?;
        Some(Self { is_signed, bits })
    }

    /// Returns the number of which `raw` has the lowest bits.
    fn number(self, raw: u64) -> i64 {
        let unused = 64 - self.bits;
        match self.is_signed {
            true => (raw << unused).cast_signed() >> unused,
            false => (raw << unused >> unused).cast_signed(),
        }
    }

    /// Returns the greatest number of this type.
    fn greatest(self) -> i64 {
        i64::MAX >> (if self.is_signed { 64 } else { 63 } - self.bits)
    }

    /// Returns the smallest number of this type.
    fn smallest(self) -> i64 {
        match self.is_signed {
            true => -self.greatest() - 1,
            false => 0,
        }
    }

    /// Returns `number + by` as a number of this type; `None` if it must not overflow and does.
    ///
    /// A number without a sign that is set is taken as 64 bits: a negative one is a great one.
    fn sum(self, number: i64, by: i64, overflow: Overflow) -> Option<i64> {
        let exact = match self.is_signed {
            true => i128::from(number) + i128::from(by),
            false => i128::from(number.cast_unsigned()) + i128::from(by),
        };
        let (least, most) = (self.smallest(), self.greatest());
        if (i128::from(least)..=i128::from(most)).contains(&exact) {
            return i64::try_from(exact).ok();
        }
        match overflow {
            Overflow::Wrap => Some(self.number(number.wrapping_add(by).cast_unsigned())),
            Overflow::Saturate if exact < i128::from(least) => Some(least),
            Overflow::Saturate => Some(most),
            Overflow::Fail => None,
        }
    }
}

/// Returns the `bits` bits at `offset` of `part`; what is behind its end is zero.
fn get(part: &[u8], offset: u64, bits: u64) -> u64 {
    let mut window = [0; 16];
    let start = usize::try_from(offset / 8).unwrap_or(usize::MAX);
    for (to, from) in window.iter_mut().zip(part.iter().skip(start)) {
        *to = *from;
    }
    let shifted = u128::from_be_bytes(window) << (offset % 8) >> (128 - bits);
    u64::try_from(shifted).expect("a field has at most 64 bits")
}

/// Writes the lowest `bits` bits of `raw` at `offset` of `part`, which has them.
fn set(part: &mut [u8], offset: u64, bits: u64, raw: u64) {
    for bit in 0..bits {
        let place = offset + bit;
        let byte = &mut part[usize::try_from(place / 8).expect("the part is in memory")];
        let mask = 0x80_u8 >> (place % 8);
        match raw >> (bits - 1 - bit) & 1 {
            0 => *byte &= !mask,
            _ => *byte |= mask,
        }
    }
}

impl Step {
    /// Returns the bytes that it reads or writes.
    fn bytes(&self) -> std::ops::Range<u64> {
        self.offset / 8..(self.offset + self.of.bits).div_ceil(8)
    }

    fn writes(&self) -> bool {
        self.action != Action::Get
    }

    /// Does it in `part`, which begins at byte `start` of the string. Returns what is replied.
    fn run(&self, part: &mut [u8], start: u64) -> Option<i64> {
        let offset = self.offset - start * 8;
        let old = self.of.number(get(part, offset, self.of.bits));
        let (new, shown) = match self.action {
            Action::Get => return Some(old),
            Action::Set(value) => (self.of.sum(value, 0, self.overflow)?, old),
            Action::Add(by) => {
                let sum = self.of.sum(old, by, self.overflow)?;
                (sum, sum)
            }
        };
        set(part, offset, self.of.bits, new.cast_unsigned());
        Some(shown)
    }
}

/// Reads the arguments. `Err` has the text of the error.
fn parse(context: &Context<'_>) -> Result<Vec<Step>, &'static str> {
    let (mut steps, mut overflow) = (Vec::new(), Overflow::Wrap);
    let mut at = 2;
    while at < context.count() {
        let left = context.count() - at - 1;
        if context.is(at, "overflow") && left >= 1 {
            overflow = match () {
                () if context.is(at + 1, "wrap") => Overflow::Wrap,
                () if context.is(at + 1, "sat") => Overflow::Saturate,
                () if context.is(at + 1, "fail") => Overflow::Fail,
                () => return Err("ERR Invalid OVERFLOW type specified"),
            };
            at += 2;
            continue;
        }
        let has_value = match () {
            () if context.is(at, "get") && left >= 2 => false,
            () if context.is(at, "set") && left >= 3 => true,
            () if context.is(at, "incrby") && left >= 3 => true,
            () => return Err(replies::SYNTAX),
        };
        let of = FieldType::parse(context.argument(at + 1)).ok_or(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported \
             but i64 is.",
        )?;
        let offset = offset_at(context, at + 2, Some(of.bits))?;
        let action = match has_value {
            false => Action::Get,
            true if context.is(at, "set") => Action::Set(context.integer_at(at + 3)?),
            true => Action::Add(context.integer_at(at + 3)?),
        };
        steps.push(Step {
            of,
            offset,
            action,
            overflow,
        });
        at += if has_value { 4 } else { 3 };
    }
    Ok(steps)
}

fn bit_field(context: &mut Context<'_>) -> Run {
    match parse(context) {
        Ok(steps) => run(context, &steps),
        Err(text) => context.fail(text),
    }
}

fn bit_field_read(context: &mut Context<'_>) -> Run {
    match parse(context) {
        Ok(steps) if steps.iter().any(Step::writes) => {
            context.fail("ERR BITFIELD_RO only supports the GET subcommand")
        }
        Ok(steps) => run(context, &steps),
        Err(text) => context.fail(text),
    }
}

fn run(context: &mut Context<'_>, steps: &[Step]) -> Run {
    let key = context.argument(1);
    let writes = steps.iter().filter(|step| step.writes());
    let written_end = writes.map(|step| step.bytes().end).max();
    if written_end.is_some_and(|end| !context.fits(end)) {
        return context.fail(replies::STRING_TOO_LONG);
    }
    let found = match written_end {
        Some(_) => context.find_to_change(key)?,
        None => context.read_partly(key)?,
    };
    let start = steps.iter().map(|step| step.bytes().start).min();
    let start = start.unwrap_or(0);
    let end = steps.iter().map(|step| step.bytes().end).max().unwrap_or(0);
    let old = context.part(key, &found, start..end)?;
    let mut part = old.clone();
    // A string grows to have all that may be written, whether that overflows or not.
    let grown = written_end.unwrap_or(0).saturating_sub(start);
    if grown > context.engine().reply_bytes_max as u64 / 2 {
        return Err(Interrupted::TooManyLong);
    }
    let grown = usize::try_from(grown).expect("it fits into memory");
    if part.len() < grown {
        part.resize(grown, 0);
    }
    let results: Vec<_> = steps
        .iter()
        .map(|step| step.run(&mut part, start))
        .collect();
    if written_end.is_some() && part != old {
        overwrite(context, key, &found, start, NewString::Bytes(&part))?;
        // The string may have become longer for fields that were not set, since they overflow.
        let done = steps.iter().zip(&results);
        if done
            .filter(|(step, _)| step.writes())
            .any(|(_, result)| result.is_some())
        {
            context.event(Class::String, "setbit", key);
        }
    }
    let mut reply = context.reply();
    reply.array(results.len());
    for result in results {
        match result {
            Some(number) => reply.integer(number),
            None => reply.null(),
        }
    }
    context.check_reply()
}
