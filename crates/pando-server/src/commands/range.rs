//! GETRANGE and its old name SUBSTR.

use std::ops::Range;

use crate::context::{Command, Context, Flags, Run};

const READONLY: Flags = Flags::READONLY;
const COMPLEXITY: &str = "O(N) where N is the length of the returned string.";

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        since: "2.4.0",
        flags: READONLY,
        complexity: COMPLEXITY,
        summary: "Returns a substring of the string stored at a key.",
        ..Command::read("getrange", 4, get_range)
    },
    Command {
        flags: READONLY,
        complexity: COMPLEXITY,
        summary: "Returns a substring from a string value.",
        ..Command::read("substr", 4, get_range)
    },
];

/// Returns the range of the bytes from `start` to `end`, both included, in a string of `length`
/// bytes; negative positions count from the end.
fn slice(length: u64, start: i64, end: i64) -> Range<u64> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let absolute = |index: i64| {
        if index < 0 {
            (length + index).max(0)
        } else {
            index
        }
    };
    let (start, end) = (absolute(start), absolute(end).min(length - 1));
    match (u64::try_from(start), u64::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end => start..end + 1,
        _ => 0..0,
    }
}

fn get_range(context: &mut Context<'_>) -> Run {
    let (start, end) = match (context.integer_at(2), context.integer_at(3)) {
        (Ok(start), Ok(end)) => (start, end),
        (Err(text), _) | (_, Err(text)) => return context.fail(text),
    };
    let found = context.read_partly(context.argument(1))?;
    let range = slice(context.string_bytes(&found), start, end);
    if let Some(chunked) = &found.large {
        return context.reply_part(chunked, range);
    }
    if let Some(head) = &found.pieces {
        let bytes = context.bytes_in_pieces(head, &range)?;
        context.reply().bulk(&bytes);
        return context.check_reply();
    }
    let Some(row) = found.row else {
        context.reply().bulk(b"");
        return Ok(());
    };
    let version = context.session.version;
    let value = std::mem::take(&mut context.data().scratch.value);
    let mut reply = pando_resp::Writer::new(context.out, version);
    let within = |at: u64| usize::try_from(at).expect("it is in memory");
    reply.bulk(&value[row.payload..][within(range.start)..within(range.end)]);
    context.data().scratch.value = value;
    context.check_reply()
}

#[cfg(test)]
mod tests {
    #[test]
    fn ranges_are_cut_as_in_redis() {
        let slice = |text: &'static [u8], start, end| {
            let range = super::slice(text.len() as u64, start, end);
            &text[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
        };
        let text = b"This is a string";
        assert_eq!(slice(text, 0, 3), b"This");
        assert_eq!(slice(text, -3, -1), b"ing");
        assert_eq!(slice(text, 0, -1), text);
        assert_eq!(slice(text, 10, 100), b"string");
        assert_eq!(slice(text, 20, 30), b"");
        assert_eq!(slice(text, 5, 2), b"");
        assert_eq!(slice(text, -1, -5), b"");
        assert_eq!(slice(text, -100, 0), b"T");
        assert_eq!(slice(b"", 0, -1), b"");
        assert_eq!(slice(text, i64::MIN, i64::MAX), text);
    }
}
