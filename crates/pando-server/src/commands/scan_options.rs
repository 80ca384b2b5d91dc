//! Options of HSCAN, SSCAN and ZSCAN.

use crate::context::{Context, Interrupted, Run, replies};

/// What an iteration over a collection shows.
pub(crate) struct ScanOptions<'a> {
    /// Pattern of the elements; `None`: all.
    pub(crate) pattern: Option<&'a [u8]>,
    /// HSCAN shows the fields only.
    pub(crate) no_values: bool,
}

impl<'a> ScanOptions<'a> {
    /// Refuses a cursor in argument 2 that is no number.
    pub(crate) fn check_cursor(context: &Context<'_>) -> Run {
        let cursor = std::str::from_utf8(context.argument(2)).ok();
        match cursor.and_then(|text| text.parse::<u64>().ok()) {
            Some(_) => Ok(()),
            None => Err("ERR invalid cursor".into()),
        }
    }

    /// Reads the options behind the cursor; `is_hash` allows NOVALUES. Redis looks at them only if
    /// the key exists.
    pub(crate) fn parse(context: &Context<'a>, is_hash: bool) -> Result<Self, Interrupted> {
        let mut options = Self {
            pattern: None,
            no_values: false,
        };
        let mut at = 3;
        while at < context.count() {
            let has_value = at + 1 < context.count();
            if has_value && context.is(at, "match") {
                let pattern = context.argument(at + 1);
                options.pattern = (pattern != b"*").then_some(pattern);
                at += 2;
            } else if has_value && context.is(at, "count") {
                if context.integer_at(at + 1)? < 1 {
                    return Err(replies::SYNTAX.into());
                }
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

/// Replies as an iteration over nothing that is complete.
pub(crate) fn reply_nothing(context: &mut Context<'_>) -> Run {
    let mut reply = context.reply();
    reply.array(2);
    reply.bulk(b"0");
    reply.array(0);
    Ok(())
}
