//! GEOADD.

use super::super::add::{Options, add_pairs};
use super::arguments;
use super::describe::writing;
use crate::context::{Command, Context, Run, replies};

pub(crate) const COMMANDS: &[Command] = &[Command {
    complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted \
                 set.",
    summary: "Adds one or more members to a geospatial index. The key is created if it doesn't \
              exist.",
    ..writing("geoadd", -5, "3.2.0", add)
}];

fn add(context: &mut Context<'_>) -> Run {
    let mut options = Options::default();
    let mut at = 2;
    while at < context.count() {
        match () {
            () if context.is(at, "nx") => options.none = true,
            () if context.is(at, "xx") => options.some = true,
            () if context.is(at, "ch") => options.changed = true,
            () => break,
        }
        at += 1;
    }
    let left = context.count() - at;
    if left == 0 || !left.is_multiple_of(3) || options.none && options.some {
        return Err(replies::SYNTAX.into());
    }
    let mut pairs = Vec::with_capacity(left / 3);
    for at in (at..context.count()).step_by(3) {
        let place = arguments::place(context, at)?;
        pairs.push((place.score(), context.argument(at + 2)));
    }
    add_pairs(context, &pairs, options)
}
