//! GET, STRLEN, GETDEL, GETEX, GETSET.

use super::expire::{Expire, parse_expire};
use crate::context::{Command, Context, Flags, Keys, Run, replies};
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        summary: "Returns the string value of a key.",
        ..Command::read("get", 2, get)
    },
    Command {
        since: "2.2.0",
        summary: "Returns the length of a string value.",
        ..Command::read("strlen", 2, length)
    },
    Command {
        since: "6.2.0",
        flags: Flags::WRITE.and(Flags::FAST),
        summary: "Returns the string value of a key after deleting the key.",
        ..Command::write("getdel", 2, get_and_delete)
    },
    Command {
        since: "6.2.0",
        flags: Flags::WRITE.and(Flags::FAST),
        summary: "Returns the string value of a key after setting its expiration time.",
        ..Command::write("getex", -2, get_and_expire)
    },
    Command {
        large: Keys::SECOND,
        summary: "Returns the previous string value of a key after setting it to a new value.",
        ..Command::write("getset", 3, get_and_set)
    },
];

fn get(context: &mut Context<'_>) -> Run {
    let found = context.read(context.argument(1))?;
    context.reply_found(&found)
}

fn length(context: &mut Context<'_>) -> Run {
    let found = context.read_head(context.argument(1))?;
    let length = context.string_bytes(&found);
    context.integer(i64::try_from(length).unwrap_or(i64::MAX))
}

fn get_and_delete(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let found = context.read(key)?;
    context.reply_found(&found)?;
    if found.row.is_some() {
        context.remove(key, &found)?;
        context.event(Class::Generic, "del", key);
    }
    Ok(())
}

fn get_and_expire(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let (mut expire, mut persist, mut at) = (None, false, 2);
    while at < context.count() {
        if expire.is_none() && context.is(at, "persist") {
            persist = true;
            at += 1;
        } else if let Some(unit) = Expire::from_option(context.argument(at))
            && !persist
            && unit.may_follow(expire)
        {
            if at + 1 >= context.count() {
                return context.fail(replies::SYNTAX);
            }
            expire = Some((unit, at + 1));
            at += 2;
        } else {
            return context.fail(replies::SYNTAX);
        }
    }
    let found = context.read(key)?;
    let mut deadline = None;
    // A key without a value has nothing to expire, so the time is not checked.
    if let Some((unit, at)) = expire.filter(|_| found.row.is_some()) {
        match parse_expire(context, unit, at) {
            Ok(time) => deadline = Some(time),
            Err(text) => return context.fail(&text),
        }
    }
    context.reply_found(&found)?;
    if found.row.is_none() || deadline.is_none() && !persist {
        return Ok(());
    }
    let event = match deadline {
        Some(time) if time <= context.now_ms => {
            context.remove(key, &found)?;
            "del"
        }
        None if found.deadline().is_none() => return Ok(()),
        deadline => {
            context.put_deadline(key, &found, deadline)?;
            match deadline {
                Some(_) => "expire",
                None => "persist",
            }
        }
    };
    context.event(Class::Generic, event, key);
    Ok(())
}

fn get_and_set(context: &mut Context<'_>) -> Run {
    let (key, value) = (context.argument(1), context.string(2));
    if !context.fits(value.len()) {
        return context.fail(replies::STRING_TOO_LONG);
    }
    let found = context.read(key)?;
    context.reply_found(&found)?;
    context.put(key, value, None, found.former)?;
    context.event(Class::String, "set", key);
    Ok(())
}
