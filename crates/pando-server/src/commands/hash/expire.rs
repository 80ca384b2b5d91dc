//! HEXPIRE, HPEXPIRE, HEXPIREAT, HPEXPIREAT.

use super::fields::{deadline_at, fields_at};
use super::writing;
use crate::commands::expire::Expire;
use crate::context::{Command, Context, Part, Run};
use crate::notifications::classes::Class;

const fn expiring(
    name: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        complexity: "O(N) where N is the number of specified fields.",
        ..writing(name, -6, "7.4.0", run, summary)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    expiring(
        "hexpire",
        |context| expire(context, Expire::Seconds),
        "Set expiry for hash field using relative time to expire (seconds)",
    ),
    expiring(
        "hpexpire",
        |context| expire(context, Expire::Milliseconds),
        "Set expiry for hash field using relative time to expire (milliseconds)",
    ),
    expiring(
        "hexpireat",
        |context| expire(context, Expire::SecondsAt),
        "Set expiry for hash field using an absolute Unix timestamp (seconds)",
    ),
    expiring(
        "hpexpireat",
        |context| expire(context, Expire::MillisecondsAt),
        "Set expiry for hash field using an absolute Unix timestamp (milliseconds)",
    ),
];

const NO_FIELD: i64 = -2;
const REFUSED: i64 = 0;
const SET: i64 = 1;
const DELETED: i64 = 2;

/// The condition on the deadline that a field has.
#[derive(Clone, Copy)]
enum Condition {
    None,
    Some,
    Greater,
    Less,
}

impl Condition {
    fn at(context: &Context<'_>, at: usize) -> Option<Self> {
        let names = [
            ("nx", Self::None),
            ("xx", Self::Some),
            ("gt", Self::Greater),
            ("lt", Self::Less),
        ];
        let mut names = names.into_iter();
        names
            .find(|(name, _)| context.is(at, name))
            .map(|(_, of)| of)
    }

    fn allows(self, old: Option<u64>, new: u64) -> bool {
        match (self, old) {
            (Self::None, old) => old.is_none(),
            (Self::Some, old) => old.is_some(),
            (Self::Greater, old) => old.is_some_and(|old| old < new),
            (Self::Less, old) => old.is_none_or(|old| old > new),
        }
    }
}

fn expire(context: &mut Context<'_>, unit: Expire) -> Run {
    let key = context.argument(1);
    // A value of another type is refused before all else.
    context.find_head(key)?;
    let deadline = deadline_at(context, unit, 2)?;
    let condition = Condition::at(context, 3);
    let at = 3 + usize::from(condition.is_some());
    let fields = fields_at(
        context,
        at,
        "ERR Parameter `numFields` should be greater than 0",
    )?;
    let mut hash = context.find_part(key, &Part::Named(&fields))?;
    let mut named = hash.named(&fields);
    let (mut gone, mut is_changed) = (Vec::new(), false);
    context.reply().array(fields.len());
    for field in fields {
        let code = match named.find(field) {
            None => NO_FIELD,
            Some(_)
                if condition.is_some_and(|of| !of.allows(hash.deadlines.of(field), deadline)) =>
            {
                REFUSED
            }
            Some(place) if deadline <= context.now_ms => {
                named.take(field);
                gone.push(place);
                DELETED
            }
            Some(_) => {
                hash.deadlines.set(field, deadline);
                is_changed = true;
                SET
            }
        };
        context.reply().integer(code);
    }
    context.check_reply()?;
    let is_shorter = hash.remove_at(&gone) > 0;
    if is_shorter || is_changed {
        let event = if is_shorter { "hdel" } else { "hexpire" };
        context.put_rest(key, &hash, (Class::Hash, event))?;
    }
    Ok(())
}
