//! HGETEX, HSETEX.

use pando_resp::parse_integer;

use super::fields::{FIELDS_COUNT, deadline_at, fields_at};
use super::write::put_pair;
use super::{grow_encoding, writing};
use crate::commands::expire::Expire;
use crate::context::{Collection, Command, Context, Flags, Interrupted, Part, Run, replies};
use crate::notifications::classes::Class;

const COMPLEXITY: &str = "O(N) where N is the number of specified fields.";

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: Flags::WRITE.and(Flags::FAST),
        complexity: COMPLEXITY,
        ..writing(
            "hgetex",
            -5,
            "8.0.0",
            get,
            "Get the value of one or more fields of a given hash key, and optionally set their \
             expiration.",
        )
    },
    Command {
        complexity: COMPLEXITY,
        ..writing(
            "hsetex",
            -6,
            "8.0.0",
            set,
            "Set the value of one or more fields of a given hash key, and optionally set their \
             expiration.",
        )
    },
];

const ONLY_ONE: &str = "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";

/// The options of HSETEX before FIELDS.
#[derive(Default)]
struct Options {
    deadline: Option<u64>,
    /// KEEPTTL
    keeps: bool,
    /// FXX: all fields must exist; FNX: none may.
    must_exist: Option<bool>,
    /// Index of the first field.
    first: usize,
}

impl Options {
    fn parse(context: &Context<'_>) -> Result<Self, Interrupted> {
        let mut options = Self::default();
        let mut at = 2;
        while at < context.count() {
            let argument = context.argument(at);
            let (unit, keeps) = (Expire::from_option(argument), context.is(at, "keepttl"));
            let is_condition = context.is(at, "fxx") || context.is(at, "fnx");
            if context.is(at, "fields") {
                options.fields(context, at)?;
                return Ok(options);
            } else if unit.is_some() || keeps {
                if options.deadline.is_some() || options.keeps {
                    return Err(ONLY_ONE.into());
                }
                options.keeps = keeps;
                if let Some(unit) = unit {
                    at += 1;
                    if at >= context.count() {
                        return Err("ERR missing expire time".into());
                    }
                    options.deadline = Some(deadline_at(context, unit, at)?);
                }
            } else if is_condition {
                if options.must_exist.is_some() {
                    let text = "ERR Only one of FXX or FNX arguments can be specified";
                    return Err(text.into());
                }
                options.must_exist = Some(context.is(at, "fxx"));
            } else {
                let shown = replies::shown(argument);
                return Err(format!("ERR unknown argument: {shown}").into());
            }
            at += 1;
        }
        Err("ERR missing FIELDS argument".into())
    }

    /// Parses the number behind FIELDS at argument `at`, and compares it with what follows.
    fn fields(&mut self, context: &Context<'_>, at: usize) -> Run {
        let wrong = || replies::wrong_arity(context.command.name);
        let left = context.count().saturating_sub(at + 2);
        if left < 2 {
            return Err(wrong().into());
        }
        let count = parse_integer(context.argument(at + 1));
        let count = count.filter(|count| (1..=i64::from(i32::MAX)).contains(count));
        let count = count.and_then(|count| usize::try_from(count).ok());
        let count = count.ok_or("ERR invalid number of fields")?;
        if count * 2 != left {
            return Err(wrong().into());
        }
        self.first = at + 2;
        Ok(())
    }
}

fn get(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    // A value of another type is refused before all else.
    context.find_head(key)?;
    // At most one option, and then FIELDS.
    let (mut deadline, persists) = (None, context.is(2, "persist"));
    let mut at = 2 + usize::from(persists);
    if let Some(unit) = Expire::from_option(context.argument(2)) {
        deadline = Some(deadline_at(context, unit, 3)?);
        at = 4;
    }
    let fields = fields_at(context, at, FIELDS_COUNT)?;
    let mut hash = context.find_part(key, &Part::Named(&fields))?;
    let mut named = hash.named(&fields);
    let (mut gone, mut is_changed) = (Vec::new(), false);
    let is_past = deadline.is_some_and(|of| of <= context.now_ms);
    context.reply().array(fields.len());
    for field in fields {
        let Some(place) = named.find(field) else {
            context.reply().null();
            continue;
        };
        context.reply().bulk(hash.strings.at(place + 1));
        context.check_reply()?;
        if is_past {
            named.take(field);
            gone.push(place);
        } else if let Some(deadline) = deadline {
            hash.deadlines.set(field, deadline);
            is_changed = true;
        } else if persists && hash.deadlines.of(field).is_some() {
            hash.deadlines.clear(field);
            is_changed = true;
        }
    }
    let is_shorter = hash.remove_at(&gone) > 0;
    let event = match (is_changed, persists) {
        (true, true) => "hpersist",
        (true, false) => "hexpire",
        (false, _) if is_shorter => "hdel",
        (false, _) => return Ok(()),
    };
    context.put_rest(key, &hash, (Class::Hash, event))
}

fn set(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let options = Options::parse(context)?;
    let fields: Vec<&[u8]> = context.arguments.from(options.first).step_by(2).collect();
    let mut hash = context.find_part(key, &Part::Named(&fields))?;
    let mut named = hash.named(&fields);
    if let Some(must_exist) = options.must_exist
        && fields
            .iter()
            .any(|field| named.find(field).is_some() != must_exist)
    {
        return context.integer(0);
    }
    if options.deadline.is_some_and(|of| of <= context.now_ms) {
        remove_at_once(context, &mut hash, &named.places())?;
        return context.integer(1);
    }
    for at in (options.first..context.count()).step_by(2) {
        let (field, value) = (context.argument(at), context.argument(at + 1));
        let place = named.find(field);
        if place.is_none() {
            named.set(field, hash.strings.len());
        }
        put_pair(&mut hash, place, field, value);
        match options.deadline {
            Some(deadline) => hash.deadlines.set(field, deadline),
            None if options.keeps => {}
            None => hash.deadlines.clear(field),
        }
    }
    grow_encoding(&mut hash);
    context.put_collection(key, &hash)?;
    context.event(Class::Hash, "hset", key);
    if options.deadline.is_some() {
        context.event(Class::Hash, "hexpire", key);
    }
    context.integer(1)
}

/// Sets fields whose deadline is over: they are gone at once. The events are those of Redis, which
/// writes them first.
fn remove_at_once(context: &mut Context<'_>, hash: &mut Collection, places: &[usize]) -> Run {
    let key = context.argument(1);
    if !hash.exists() {
        context.event(Class::New, "new", key);
    }
    context.event(Class::Hash, "hset", key);
    if hash.remove_at(places) > 0 {
        return context.put_rest(key, hash, (Class::Hash, "hdel"));
    }
    context.event(Class::Hash, "hdel", key);
    if !hash.exists() {
        context.event(Class::Generic, "del", key);
    }
    Ok(())
}
