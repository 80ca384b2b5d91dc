//! BITOP: a string made of the bits of others. A shorter one counts as if zeros followed.

use std::collections::HashMap;

use crate::context::{Command, Context, Flags, Group, Keys, NewString, Run, replies};
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[Command {
    since: "2.6.0",
    flags: Flags::WRITE.and(Flags::DENYOOM),
    group: Group::Bitmap,
    keys: Keys::FROM_SECOND,
    complexity: "O(N)",
    summary: "Performs bitwise operations on multiple strings, and stores the result.",
    ..Command::write("bitop", -4, bit_operation)
}];

/// What a source is good for. One that is named again has been read already, however often: a
/// request of some megabytes names a string a million times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Bits,
    /// Its bits cancel each other out.
    Length,
    Nothing,
}

/// Returns what each of `sources` is good for.
fn uses(operation: Operation, sources: &[&[u8]]) -> Vec<Use> {
    let mut times: HashMap<&[u8], usize> = HashMap::new();
    for source in sources {
        *times.entry(source).or_insert(0) += 1;
    }
    let of = |source| match times.remove(source) {
        None => Use::Nothing,
        Some(times) if operation == Operation::Xor && times.is_multiple_of(2) => Use::Length,
        Some(_) => Use::Bits,
    };
    sources.iter().copied().map(of).collect()
}

/// What is done with the bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    fn parse(context: &Context<'_>) -> Option<Self> {
        let names = [
            ("and", Self::And),
            ("or", Self::Or),
            ("xor", Self::Xor),
            ("not", Self::Not),
        ];
        let named = names.into_iter().find(|(name, _)| context.is(1, name));
        named.map(|(_, operation)| operation)
    }

    /// Changes `sum`, the result so far, by one more string.
    fn add(self, sum: &mut Vec<u8>, string: &[u8]) {
        if sum.len() < string.len() {
            sum.resize(string.len(), 0);
        }
        for (byte, other) in sum.iter_mut().zip(string) {
            match self {
                Self::And => *byte &= other,
                Self::Or => *byte |= other,
                Self::Xor => *byte ^= other,
                Self::Not => *byte = !other,
            }
        }
        if self == Self::And {
            sum[string.len()..].fill(0);
        }
    }
}

fn bit_operation(context: &mut Context<'_>) -> Run {
    let Some(operation) = Operation::parse(context) else {
        return context.fail(replies::SYNTAX);
    };
    if operation == Operation::Not && context.count() != 4 {
        return context.fail("ERR BITOP NOT must be called with a single source key.");
    }
    let key = context.argument(2);
    let mut sum = Vec::new();
    let sources: Vec<&[u8]> = context.arguments.from(3).collect();
    let uses = uses(operation, &sources);
    for (index, (source, of)) in sources.iter().zip(uses).enumerate() {
        // Each is looked up, and told if it is missing.
        let found = context.read(source)?;
        if of == Use::Nothing {
            continue;
        }
        let mut string = context.part(source, &found, 0..u64::MAX)?;
        if of == Use::Length {
            string.fill(0);
        }
        match operation {
            Operation::Not => operation.add(&mut sum, &string),
            _ if index == 0 => sum = string,
            _ => operation.add(&mut sum, &string),
        }
    }
    let length = sum.len();
    let there = context.find_any_head(key)?;
    if length > 0 {
        context.put(key, NewString::Bytes(&sum), None, there.former)?;
        context.event(Class::String, "set", key);
    } else if there.row.is_some() {
        context.remove(key, &there)?;
        context.event(Class::Generic, "del", key);
    }
    context.integer(i64::try_from(length).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::{Operation, Use, uses};

    #[test]
    fn a_source_is_read_once_however_often_it_is_named() {
        let sources: [&[u8]; 5] = [b"a", b"b", b"a", b"c", b"c"];
        let of = |operation| uses(operation, &sources);
        let (bits, length, nothing) = (Use::Bits, Use::Length, Use::Nothing);
        assert_eq!(of(Operation::And), [bits, bits, nothing, bits, nothing]);
        assert_eq!(of(Operation::Or), [bits, bits, nothing, bits, nothing]);
        assert_eq!(of(Operation::Xor), [length, bits, nothing, length, nothing]);
        let thrice = uses(Operation::Xor, &[b"a", b"a", b"a"]);
        assert_eq!(thrice, [bits, nothing, nothing]);
    }

    #[test]
    fn a_shorter_string_counts_as_if_zeros_followed() {
        let of = |operation: Operation, first: &[u8], second: &[u8]| {
            let mut sum = first.to_vec();
            operation.add(&mut sum, second);
            sum
        };
        assert_eq!(of(Operation::And, b"\xff\xff", b"\x0f"), b"\x0f\0");
        assert_eq!(of(Operation::And, b"\x0f", b"\xff\xff"), b"\x0f\0");
        assert_eq!(of(Operation::Or, b"\x0f", b"\xf0\x01"), b"\xff\x01");
        assert_eq!(of(Operation::Xor, b"\xff\x01", b"\xf0"), b"\x0f\x01");
        assert_eq!(of(Operation::Not, b"", b"\xf0\0"), b"\x0f\xff");
    }
}
