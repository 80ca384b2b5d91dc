//! SET with all its options, SETNX, SETEX, PSETEX.

use super::expire::{Expire, parse_expire};
use crate::context::{Command, Context, Flags, Found, Interrupted, Keys, Run, replies};
use crate::data::keyspace::ValueType;
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: Flags::WRITE.and(Flags::DENYOOM),
        large: Keys::SECOND,
        summary: "Sets the string value of a key, ignoring its type.",
        value_type: None,
        ..Command::write("set", -3, set)
    },
    Command {
        large: Keys::SECOND,
        summary: "Set the string value of a key only when the key doesn't exist.",
        value_type: None,
        ..Command::write("setnx", 3, set_if_absent)
    },
    Command {
        since: "2.0.0",
        large: Keys::THIRD,
        summary: "Sets the string value and expiration time of a key.",
        value_type: None,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        ..Command::write("setex", 4, set_with_seconds)
    },
    Command {
        since: "2.6.0",
        large: Keys::THIRD,
        summary: "Sets both string value and expiration time in milliseconds of a key.",
        value_type: None,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        ..Command::write("psetex", 4, set_with_milliseconds)
    },
];

/// The condition under which SET writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    Absent,
    Present,
}

struct Options {
    condition: Condition,
    get: bool,
    keep_deadline: bool,
    deadline: Option<u64>,
}

fn parse(context: &Context<'_>) -> Result<Options, String> {
    let syntax = || replies::SYNTAX.to_owned();
    let mut options = Options {
        condition: Condition::Always,
        get: false,
        keep_deadline: false,
        deadline: None,
    };
    let mut expire = None;
    let mut at = 3;
    while at < context.count() {
        if context.is(at, "nx") && options.condition != Condition::Present {
            options.condition = Condition::Absent;
        } else if context.is(at, "xx") && options.condition != Condition::Absent {
            options.condition = Condition::Present;
        } else if context.is(at, "get") {
            options.get = true;
        } else if context.is(at, "keepttl") && expire.is_none() {
            options.keep_deadline = true;
        } else if let Some(unit) = Expire::from_option(context.argument(at))
            && !options.keep_deadline
            && unit.may_follow(expire)
        {
            at += 1;
            if at >= context.count() {
                return Err(syntax());
            }
            expire = Some((unit, at));
        } else {
            return Err(syntax());
        }
        at += 1;
    }
    if let Some((unit, at)) = expire {
        options.deadline = Some(parse_expire(context, unit, at)?);
    }
    Ok(options)
}

/// Returns the expiry entry of a key that is about to be overwritten without being read. While the
/// database has no entries, nor the batch, the row need not be read for it: an entry that another
/// client adds in between becomes garbage, which the cleaner removes. So it is enough to count them
/// once for all commands of a pipeline run. A folded key is always read, since its row may belong
/// to another key; and so is any key in a transaction of several commands: what is known of the
/// database now may be long over when it commits.
pub(crate) fn entry_to_replace(
    context: &mut Context<'_>,
    key: &[u8],
) -> Result<Found, Interrupted> {
    // Whoever wants to know of new keys has it looked up.
    let asks = context.shared.notifications.wants(Class::New);
    let is_alone = context.exec_index.is_none() && context.session.interactive.is_none();
    let may_skip = is_alone && !context.engine().folder.folds(key);
    if may_skip && !asks && has_plain_rows(context) {
        return Ok(Found::default());
    }
    context.find_head(key)
}

/// Returns whether no row of the database has an expiry entry, or rows of its own in another table.
fn has_plain_rows(context: &mut Context<'_>) -> bool {
    let database = context.database();
    if database.members.table().is_some() {
        return false;
    }
    let batch = context.data().batch.as_deref();
    if batch.is_none_or(|batch| batch.touches(&database.elements)) {
        return false;
    }
    let number = context.session.database;
    let counted = context.progress.without_entries;
    let (_, is_without) = counted.filter(|(of, _)| *of == number).unwrap_or_else(|| {
        let counted = (number, database.entries() == 0);
        context.progress.without_entries = Some(counted);
        counted
    });
    let batch = context.data().batch.as_deref_mut();
    // The commit may wait, and others may make the first large collection meanwhile.
    is_without && batch.is_some_and(|batch| batch.expect_unset(database.members.is_made()))
}

fn set(context: &mut Context<'_>) -> Run {
    let (key, value) = (context.argument(1), context.string(2));
    if context.count() == 3 {
        if !context.fits(value.len()) {
            return context.fail(replies::STRING_TOO_LONG);
        }
        let found = entry_to_replace(context, key)?;
        context.put(key, value, None, found.former)?;
        context.event(Class::String, "set", key);
        return context.ok();
    }
    let options = match parse(context) {
        Ok(options) => options,
        Err(text) => return context.fail(&text),
    };
    if !context.fits(value.len()) {
        return context.fail(replies::STRING_TOO_LONG);
    }
    let found = match options.get {
        true => context.read(key)?,
        false => context.find_head(key)?,
    };
    if options.get {
        if found
            .row
            .is_some_and(|row| row.value_type != ValueType::String)
        {
            return Err(Interrupted::from(replies::WRONG_TYPE));
        }
        context.reply_found(&found)?;
    }
    let refused = match options.condition {
        Condition::Always => false,
        Condition::Absent => found.row.is_some(),
        Condition::Present => found.row.is_none(),
    };
    if refused {
        if !options.get {
            context.reply().null();
        }
        return Ok(());
    }
    let deadline = if options.keep_deadline {
        found.deadline()
    } else {
        options.deadline
    };
    context.put(key, value, deadline, found.former)?;
    context.event(Class::String, "set", key);
    if options.deadline.is_some() {
        context.event(Class::Generic, "expire", key);
    }
    if options.get { Ok(()) } else { context.ok() }
}

fn set_if_absent(context: &mut Context<'_>) -> Run {
    let (key, value) = (context.argument(1), context.string(2));
    if !context.fits(value.len()) {
        return context.fail(replies::STRING_TOO_LONG);
    }
    let found = context.find_head(key)?;
    if found.row.is_some() {
        return context.integer(0);
    }
    context.put(key, value, None, found.former)?;
    context.event(Class::String, "set", key);
    context.integer(1)
}

fn set_with_seconds(context: &mut Context<'_>) -> Run {
    set_with(context, Expire::Seconds)
}

fn set_with_milliseconds(context: &mut Context<'_>) -> Run {
    set_with(context, Expire::Milliseconds)
}

fn set_with(context: &mut Context<'_>, unit: Expire) -> Run {
    let (key, value) = (context.argument(1), context.string(3));
    let deadline = match parse_expire(context, unit, 2) {
        Ok(deadline) => deadline,
        Err(text) => return context.fail(&text),
    };
    if !context.fits(value.len()) {
        return context.fail(replies::STRING_TOO_LONG);
    }
    let found = context.find_head(key)?;
    context.put(key, value, Some(deadline), found.former)?;
    context.event(Class::String, "set", key);
    context.event(Class::Generic, "expire", key);
    context.ok()
}
