//! HTTL, HPTTL, HEXPIRETIME, HPEXPIRETIME, HPERSIST.

use super::fields::{FIELDS_COUNT, fields_at};
use super::{reading, writing};
use crate::context::{Command, Context, Flags, Part, Run};
use crate::notifications::classes::Class;

const COMPLEXITY: &str = "O(N) where N is the number of specified fields.";

const fn asking(
    name: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        complexity: COMPLEXITY,
        ..reading(name, -5, "7.4.0", run, summary)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    asking(
        "httl",
        |context| ask(context, 1000, true),
        "Returns the TTL in seconds of a hash field.",
    ),
    asking(
        "hpttl",
        |context| ask(context, 1, true),
        "Returns the TTL in milliseconds of a hash field.",
    ),
    asking(
        "hexpiretime",
        |context| ask(context, 1000, false),
        "Returns the expiration time of a hash field as a Unix timestamp, in seconds.",
    ),
    asking(
        "hpexpiretime",
        |context| ask(context, 1, false),
        "Returns the expiration time of a hash field as a Unix timestamp, in msec.",
    ),
    Command {
        flags: Flags::WRITE.and(Flags::FAST),
        complexity: COMPLEXITY,
        ..writing(
            "hpersist",
            -5,
            "7.4.0",
            persist,
            "Removes the expiration time for each specified field",
        )
    },
];

const NO_FIELD: i64 = -2;
const NO_DEADLINE: i64 = -1;

/// Replies with the times in units of `unit_ms`, rounded up.
fn ask(context: &mut Context<'_>, unit_ms: u64, relative: bool) -> Run {
    let key = context.argument(1);
    // A value of another type is refused before all else.
    context.find_head(key)?;
    let fields = fields_at(context, 2, FIELDS_COUNT)?;
    let hash = context.read_part(key, &Part::Named(&fields))?;
    let mut named = hash.named(&fields);
    let base = if relative { context.now_ms } else { 0 };
    context.reply().array(fields.len());
    for field in fields {
        let code = match (named.find(field), hash.deadlines.of(field)) {
            (None, _) => NO_FIELD,
            (Some(_), None) => NO_DEADLINE,
            (Some(_), Some(deadline)) => {
                let time = deadline.saturating_sub(base).div_ceil(unit_ms);
                i64::try_from(time).unwrap_or(i64::MAX)
            }
        };
        context.reply().integer(code);
    }
    context.check_reply()
}

fn persist(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    context.find_head(key)?;
    let fields = fields_at(context, 2, FIELDS_COUNT)?;
    let mut hash = context.find_part(key, &Part::Named(&fields))?;
    let mut named = hash.named(&fields);
    let mut is_changed = false;
    context.reply().array(fields.len());
    for field in fields {
        let code = match (named.find(field), hash.deadlines.of(field)) {
            (None, _) => NO_FIELD,
            (Some(_), None) => NO_DEADLINE,
            (Some(_), Some(_)) => {
                hash.deadlines.clear(field);
                is_changed = true;
                1
            }
        };
        context.reply().integer(code);
    }
    context.check_reply()?;
    match is_changed {
        true => context.put_rest(key, &hash, (Class::Hash, "hpersist")),
        false => Ok(()),
    }
}
