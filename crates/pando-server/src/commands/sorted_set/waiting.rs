//! BZPOPMIN, BZPOPMAX, BZMPOP: commands of sorted sets that wait for members.

use super::describe::writing;
use super::pop::{End, pop_from, take};
use super::replying;
use crate::commands::popping::Popping;
use crate::context::{Command, Context, Flags, Keys, Run};

const COMPLEXITY: &str = "O(log(N)) with N being the number of elements in the sorted set.";

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: FLAGS,
        keys: Keys::BUT_LAST,
        complexity: COMPLEXITY,
        summary: "Removes and returns the member with the lowest score from one or more sorted \
                  sets. Blocks until a member available otherwise. Deletes the sorted set if the \
                  last element was popped.",
        ..writing("bzpopmin", -3, "5.0.0", |context| pop(context, End::Lowest))
    },
    Command {
        flags: FLAGS,
        keys: Keys::BUT_LAST,
        complexity: COMPLEXITY,
        summary: "Removes and returns the member with the highest score from one or more sorted \
                  sets. Blocks until a member available otherwise. Deletes the sorted set if the \
                  last element was popped.",
        ..writing("bzpopmax", -3, "5.0.0", |context| {
            pop(context, End::Highest)
        })
    },
    Command {
        flags: Flags::WRITE.and(Flags::REMOVES).and(Flags::BLOCKING),
        keys: Keys::NONE.and_counted(2),
        complexity: "O(K) + O(M*log(N)) where K is the number of provided keys, N being the \
                     number of elements in the sorted set, and M being the number of elements \
                     popped.",
        summary: "Removes and returns a member by score from one or more sorted sets. Blocks \
                  until a member is available otherwise. Deletes the sorted set if the last \
                  element was popped.",
        ..writing("bzmpop", -5, "7.0.0", pop_of_many)
    },
];

const FLAGS: Flags = Flags::WRITE
    .and(Flags::REMOVES)
    .and(Flags::FAST)
    .and(Flags::BLOCKING)
    .and(Flags::NOSCRIPT);

fn pop(context: &mut Context<'_>, end: End) -> Run {
    let timeout_at = context.count() - 1;
    let serve = |context: &mut Context<'_>, at: usize| {
        let key = context.argument(at);
        let set = end.find(context, key, 1)?;
        if !set.exists() {
            return Ok(false);
        }
        context.reply().array(3);
        context.reply().bulk(key);
        take(context, key, set, (end, 1), |context, element| {
            context.reply().bulk(element.1);
            replying::score(context, element.0);
            context.check_reply()
        })?;
        Ok(true)
    };
    context.serve_or_wait(1..timeout_at, timeout_at, serve, |reply| reply.null_array())
}

fn pop_of_many(context: &mut Context<'_>) -> Run {
    let popping = Popping::parse(context, 2, End::at)?;
    let keys = popping.keys.clone();
    let serve = |context: &mut Context<'_>, at| pop_from(context, at, &popping);
    context.serve_or_wait(keys, 1, serve, |reply| reply.null_array())
}
