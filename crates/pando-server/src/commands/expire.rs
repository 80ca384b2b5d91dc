//! EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT with NX, XX, GT, LT; PERSIST; the times of SET and GETEX.

use crate::context::{Command, Context, Flags, Group, Run, replies};
use crate::notifications::classes::Class;

const fn expiring(
    name: &'static str,
    arity: i32,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        since,
        flags: Flags::WRITE.and(Flags::FAST),
        group: Group::Generic,
        value_type: None,
        summary,
        ..Command::write(name, arity, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    expiring(
        "expire",
        -3,
        "1.0.0",
        |context| expire(context, Expire::Seconds),
        "Sets the expiration time of a key in seconds.",
    ),
    expiring(
        "pexpire",
        -3,
        "2.6.0",
        |context| expire(context, Expire::Milliseconds),
        "Sets the expiration time of a key in milliseconds.",
    ),
    expiring(
        "expireat",
        -3,
        "1.2.0",
        |context| expire(context, Expire::SecondsAt),
        "Sets the expiration time of a key to a Unix timestamp.",
    ),
    expiring(
        "pexpireat",
        -3,
        "2.6.0",
        |context| expire(context, Expire::MillisecondsAt),
        "Sets the expiration time of a key to a Unix milliseconds timestamp.",
    ),
    expiring(
        "persist",
        2,
        "2.2.0",
        persist,
        "Removes the expiration time of a key.",
    ),
];

/// The meaning of an expiry's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expire {
    Seconds,
    Milliseconds,
    SecondsAt,
    MillisecondsAt,
}

impl Expire {
    /// Returns the meaning of an option of SET or GETEX.
    pub(crate) fn from_option(option: &[u8]) -> Option<Self> {
        let options: [(&[u8], Self); 4] = [
            (b"ex", Self::Seconds),
            (b"px", Self::Milliseconds),
            (b"exat", Self::SecondsAt),
            (b"pxat", Self::MillisecondsAt),
        ];
        let mut options = options.into_iter();
        options
            .find(|(name, _)| option.eq_ignore_ascii_case(name))
            .map(|(_, unit)| unit)
    }

    /// Returns true if this option may come after `before`: the same option again, of which the
    /// last counts.
    pub(crate) fn may_follow(self, before: Option<(Self, usize)>) -> bool {
        before.is_none_or(|(unit, _)| unit == self)
    }

    /// Returns `number` as milliseconds since 1970, which may be negative; `None` if it does not
    /// fit.
    fn deadline(self, number: i64, now_ms: u64) -> Option<i64> {
        let milliseconds = match self {
            Self::Seconds | Self::SecondsAt => number.checked_mul(1000)?,
            Self::Milliseconds | Self::MillisecondsAt => number,
        };
        match self {
            Self::Seconds | Self::Milliseconds => {
                milliseconds.checked_add(i64::try_from(now_ms).ok()?)
            }
            Self::SecondsAt | Self::MillisecondsAt => Some(milliseconds),
        }
    }
}

/// Returns argument `at` as a deadline; it must be positive, as SET demands.
pub(crate) fn parse_expire(context: &Context<'_>, unit: Expire, at: usize) -> Result<u64, String> {
    let number = context.integer_at(at)?;
    let deadline = Some(number).filter(|number| *number > 0);
    let deadline = deadline.and_then(|number| unit.deadline(number, context.now_ms));
    let deadline = deadline.and_then(|deadline| u64::try_from(deadline).ok());
    deadline.ok_or_else(|| replies::invalid_expire(context.command.name))
}

/// Conditions of EXPIRE on the deadline that the key has.
#[derive(Default, Clone, Copy)]
struct Conditions {
    none: bool,
    some: bool,
    greater: bool,
    less: bool,
}

fn conditions(context: &Context<'_>) -> Result<Conditions, String> {
    let mut conditions = Conditions::default();
    for at in 3..context.count() {
        if context.is(at, "nx") {
            conditions.none = true;
        } else if context.is(at, "xx") {
            conditions.some = true;
        } else if context.is(at, "gt") {
            conditions.greater = true;
        } else if context.is(at, "lt") {
            conditions.less = true;
        } else {
            let option = replies::shown(context.argument(at));
            return Err(format!("ERR Unsupported option {option}"));
        }
    }
    if conditions.none && (conditions.some || conditions.greater || conditions.less) {
        return Err(
            "ERR NX and XX, GT or LT options at the same time are not compatible".to_owned(),
        );
    }
    if conditions.greater && conditions.less {
        return Err("ERR GT and LT options at the same time are not compatible".to_owned());
    }
    Ok(conditions)
}

impl Conditions {
    /// A key without a deadline counts as one whose deadline is later than any other.
    fn allow(self, old: Option<u64>, new: i64) -> bool {
        let old = old.map(|old| i64::try_from(old).unwrap_or(i64::MAX));
        !(self.none && old.is_some()
            || self.some && old.is_none()
            || self.greater && old.is_none_or(|old| new <= old)
            || self.less && old.is_some_and(|old| new >= old))
    }
}

fn expire(context: &mut Context<'_>, unit: Expire) -> Run {
    let conditions = match conditions(context) {
        Ok(conditions) => conditions,
        Err(text) => return context.fail(&text),
    };
    let number = match context.integer_at(2) {
        Ok(number) => number,
        Err(text) => return context.fail(text),
    };
    let Some(deadline) = unit.deadline(number, context.now_ms) else {
        return context.fail(&replies::invalid_expire(context.command.name));
    };
    let key = context.argument(1);
    let found = context.find_partly(key)?;
    if found.row.is_none() || !conditions.allow(found.deadline(), deadline) {
        return context.integer(0);
    }
    match u64::try_from(deadline) {
        Ok(deadline) if deadline > context.now_ms => {
            context.put_deadline(key, &found, Some(deadline))?;
            context.event(Class::Generic, "expire", key);
        }
        _ => {
            context.remove(key, &found)?;
            context.event(Class::Generic, "del", key);
        }
    }
    context.integer(1)
}

fn persist(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let found = context.find_partly(key)?;
    if found.deadline().is_none() {
        return context.integer(0);
    }
    context.put_deadline(key, &found, None)?;
    context.event(Class::Generic, "persist", key);
    context.integer(1)
}
