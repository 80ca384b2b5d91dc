//! INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT.

use pando_resp::parse_integer;

use crate::commands::decimal::{Decimal, DecimalError};
use crate::context::{Command, Context, NewString, Run, replies};
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        summary: "Increments the integer value of a key by one.",
        ..Command::write("incr", 2, increment)
    },
    Command {
        summary: "Decrements the integer value of a key by one.",
        ..Command::write("decr", 2, decrement)
    },
    Command {
        summary: "Increments the integer value of a key by a number.",
        ..Command::write("incrby", 3, increment_by)
    },
    Command {
        summary: "Decrements a number from the integer value of a key.",
        ..Command::write("decrby", 3, decrement_by)
    },
    Command {
        since: "2.6.0",
        summary: "Increments the floating point value of a key by a number.",
        ..Command::write("incrbyfloat", 3, increment_by_float)
    },
];

fn increment(context: &mut Context<'_>) -> Run {
    add(context, 1)
}

fn decrement(context: &mut Context<'_>) -> Run {
    add(context, -1)
}

fn increment_by(context: &mut Context<'_>) -> Run {
    match context.integer_at(2) {
        Ok(by) => add(context, by),
        Err(text) => context.fail(text),
    }
}

fn decrement_by(context: &mut Context<'_>) -> Run {
    match context.integer_at(2).map(i64::checked_neg) {
        Ok(Some(by)) => add(context, by),
        Ok(None) => context.fail(replies::DECREMENT_OVERFLOW),
        Err(text) => context.fail(text),
    }
}

fn add(context: &mut Context<'_>, by: i64) -> Run {
    let key = context.argument(1);
    let found = context.find(key)?;
    let old = match found.row {
        Some(row) => parse_integer(context.payload(row)),
        None => Some(0),
    };
    let Some(old) = old else {
        return context.fail(replies::NOT_AN_INTEGER);
    };
    let Some(new) = old.checked_add(by) else {
        return context.fail(replies::OVERFLOW);
    };
    let mut digits = itoa::Buffer::new();
    let text = digits.format(new).as_bytes();
    context.put(key, NewString::Bytes(text), found.deadline(), found.former)?;
    context.event(Class::String, "incrby", key);
    context.integer(new)
}

fn increment_by_float(context: &mut Context<'_>) -> Run {
    let (key, by) = (context.argument(1), context.argument(2));
    let found = context.find(key)?;
    let old = match found.row {
        Some(row) => Decimal::parse(context.payload(row)),
        None => Decimal::parse(b"0"),
    };
    let sum = old.and_then(|old| old.sum(Decimal::parse(by)?));
    let text = match sum {
        Ok(text) => text,
        Err(DecimalError::NotANumber) => return context.fail(replies::NOT_A_FLOAT),
        Err(DecimalError::NotFinite) => return context.fail(replies::NOT_FINITE),
    };
    context.put(
        key,
        NewString::Bytes(text.as_bytes()),
        found.deadline(),
        found.former,
    )?;
    context.event(Class::String, "incrbyfloat", key);
    context.reply().bulk(text.as_bytes());
    Ok(())
}
