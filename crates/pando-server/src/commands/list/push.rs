//! LPUSH, RPUSH, LPUSHX, RPUSHX.

use super::{End, encoding, part_of, reply_length, writing};
use crate::context::{Command, Context, Flags, Run};
use crate::data::packed::Encoding;
use crate::notifications::classes::Class;

const fn pushing(
    name: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        complexity: "O(1) for each element added, so O(N) to add N elements when the command is \
                     called with multiple arguments.",
        summary,
        ..writing(name, -3, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    pushing(
        "lpush",
        |context| push(context, End::Head, false),
        "Prepends one or more elements to a list. Creates the key if it doesn't exist.",
    ),
    pushing(
        "rpush",
        |context| push(context, End::Tail, false),
        "Appends one or more elements to a list. Creates the key if it doesn't exist.",
    ),
    Command {
        since: "2.2.0",
        ..pushing(
            "lpushx",
            |context| push(context, End::Head, true),
            "Prepends one or more elements to a list only when the list exists.",
        )
    },
    Command {
        since: "2.2.0",
        ..pushing(
            "rpushx",
            |context| push(context, End::Tail, true),
            "Appends an element to a list only when the list exists.",
        )
    },
];

fn push(context: &mut Context<'_>, end: End, must_exist: bool) -> Run {
    let key = context.argument(1);
    let found = match context.long_collection(key, Encoding::Quicklist)? {
        Ok(held) => {
            let arguments = context.arguments;
            let elements = (2..arguments.len()).map(move |index| arguments.at(index));
            let length = context.push_at_end(key, (held, end.into()), elements)?;
            context.event(Class::List, end.pushed(), key);
            return reply_length(context, length);
        }
        Err(found) => found,
    };
    let (mut list, _) = part_of(context, found, |length| match end {
        End::Head => 0..0,
        End::Tail => length..length,
    })?;
    if must_exist && !list.exists() {
        return context.integer(0);
    }
    let elements = || (2..context.count()).map(|index| context.argument(index));
    let added = elements().map(|of| of.len() as u64).sum();
    encoding::grow(&mut list, elements().len(), added);
    match end {
        End::Tail => elements().for_each(|element| list.strings.push(element)),
        End::Head => list.strings.push_front(elements().rev()),
    }
    context.put_collection(key, &list)?;
    context.event(Class::List, end.pushed(), key);
    reply_length(context, list.len())
}
