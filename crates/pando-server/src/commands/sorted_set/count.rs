//! ZCOUNT and ZLEXCOUNT: how many members a range has.

use super::bounds::{Bounds, By};
use super::describe::reading;
use crate::context::{Command, Context, Run};

const COMPLEXITY: &str = "O(log(N)) with N being the number of elements in the sorted set.";

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        complexity: COMPLEXITY,
        summary: "Returns the count of members in a sorted set that have scores within a range.",
        ..reading("zcount", 4, "2.0.0", |context| count(context, By::Score))
    },
    Command {
        complexity: COMPLEXITY,
        summary: "Returns the number of members in a sorted set within a lexicographical range.",
        ..reading("zlexcount", 4, "2.8.9", |context| {
            count(context, By::Member)
        })
    },
];

fn count(context: &mut Context<'_>, by: By) -> Run {
    let bounds = Bounds::parse(context, by, 2, 3)?;
    let found = context.read(context.argument(1))?;
    let count = bounds.count(context, found)?;
    context.integer(i64::try_from(count).unwrap_or(i64::MAX))
}
