//! Options of HSCAN, SSCAN and ZSCAN.

use crate::context::{Collection, Context, Interrupted, Part, Run, replies};
use crate::data::keyspace::ValueType;

/// Number of elements that are asked for without COUNT.
const COUNT: usize = 10;

/// What an iteration over a collection shows.
pub(crate) struct ScanOptions<'a> {
    /// Pattern of the elements; `None`: all.
    pub(crate) pattern: Option<&'a [u8]>,
    /// HSCAN shows the fields only.
    pub(crate) no_values: bool,
    /// Number of elements that are asked for, about.
    count: usize,
}

impl<'a> ScanOptions<'a> {
    /// Reads argument 2 as a cursor.
    pub(crate) fn cursor(context: &Context<'_>) -> Result<u64, Interrupted> {
        cursor_of(context.argument(2)).ok_or_else(|| "ERR invalid cursor".into())
    }

    /// Reads the options behind the cursor; `is_hash` allows NOVALUES. Redis looks at them only if
    /// the key exists.
    pub(crate) fn parse(context: &Context<'a>, is_hash: bool) -> Result<Self, Interrupted> {
        let mut options = Self {
            pattern: None,
            no_values: false,
            count: COUNT,
        };
        let mut at = 3;
        while at < context.count() {
            let has_value = at + 1 < context.count();
            if has_value && context.is(at, "match") {
                let pattern = context.argument(at + 1);
                options.pattern = (pattern != b"*").then_some(pattern);
                at += 2;
            } else if has_value && context.is(at, "count") {
                let count = context.integer_at(at + 1)?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                options.count = count.ok_or(replies::SYNTAX)?;
                at += 2;
            } else if is_hash && context.is(at, "novalues") {
                options.no_values = true;
                at += 1;
            } else {
                return Err(replies::SYNTAX.into());
            }
        }
        Ok(options)
    }
}

/// Reads a cursor as Redis does: with a sign, and none at all is 0.
pub(crate) fn cursor_of(argument: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(argument.split(|byte| *byte == 0).next()?).ok()?;
    let (is_negative, digits) = match text.as_bytes() {
        [] => return Some(0),
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u64>().ok().filter(|_| is_number)?;
    Some(if is_negative {
        number.wrapping_neg()
    } else {
        number
    })
}

/// Reads the collection whose key is argument 1 from `cursor` on: about as many elements as the
/// options say, or all if it is packed, as Redis shows a listpack. Also returns the next cursor; 0:
/// there is none. `None`: the key has none, and the options are not looked at.
pub(crate) fn iterate<'a>(
    context: &mut Context<'a>,
    value_type: ValueType,
    cursor: u64,
) -> Result<Option<(Collection, u64, ScanOptions<'a>)>, Interrupted> {
    let found = context.read(context.argument(1))?;
    if found.row.is_none() {
        return Ok(None);
    }
    let options = ScanOptions::parse(context, value_type == ValueType::Hash)?;
    let part = Part::Iterated(cursor, options.count);
    let (collection, next) = context.iterated(found, value_type, &part)?;
    Ok(Some((collection, next, options)))
}

/// Replies as an iteration over nothing that is complete.
pub(crate) fn reply_nothing(context: &mut Context<'_>) -> Run {
    let mut reply = context.reply();
    reply.array(2);
    reply.bulk(b"0");
    reply.array(0);
    Ok(())
}
