//! ZREM, ZREMRANGEBYRANK, ZREMRANGEBYSCORE, ZREMRANGEBYLEX.

use super::bounds::{Bounds, By};
use super::describe::{REMOVING, writing};
use super::order::SortedSet;
use crate::context::{Command, Context, Flags, Part, Run};
use crate::notifications::classes::Class;

const RANGE_COMPLEXITY: &str = "O(log(N)+M) with N being the number of elements in the sorted set \
     and M the number of elements removed by the operation.";

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: REMOVING,
        complexity: "O(M*log(N)) with N being the number of elements in the sorted set and M the \
                     number of elements to be removed.",
        summary: "Removes one or more members from a sorted set. Deletes the sorted set if all \
                  members were removed.",
        ..writing("zrem", -3, "1.2.0", remove)
    },
    Command {
        flags: Flags::WRITE.and(Flags::REMOVES),
        complexity: RANGE_COMPLEXITY,
        summary: "Removes members in a sorted set within a range of indexes. Deletes the sorted \
                  set if all members were removed.",
        ..writing("zremrangebyrank", 4, "2.0.0", |context| {
            remove_range(context, By::Rank)
        })
    },
    Command {
        flags: Flags::WRITE.and(Flags::REMOVES),
        complexity: RANGE_COMPLEXITY,
        summary: "Removes members in a sorted set within a range of scores. Deletes the sorted \
                  set if all members were removed.",
        ..writing("zremrangebyscore", 4, "1.2.0", |context| {
            remove_range(context, By::Score)
        })
    },
    Command {
        flags: Flags::WRITE.and(Flags::REMOVES),
        complexity: RANGE_COMPLEXITY,
        summary: "Removes members in a sorted set within a lexicographical range. Deletes the \
                  sorted set if all members were removed.",
        ..writing("zremrangebylex", 4, "2.8.9", |context| {
            remove_range(context, By::Member)
        })
    },
];

fn remove(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let members: Vec<&[u8]> = context.arguments.from(2).collect();
    let mut set = SortedSet::find_part(context, key, &Part::Named(&members))?;
    let removed = set.remove_named(&members);
    if removed > 0 {
        context.event(Class::SortedSet, "zrem", key);
        set.put(context, key)?;
    }
    context.integer(removed)
}

fn remove_range(context: &mut Context<'_>, by: By) -> Run {
    let bounds = Bounds::parse(context, by, 2, 3)?;
    let key = context.argument(1);
    let found = context.find(key)?;
    let (mut set, ranks) = bounds.select(context, found, false, |ranks| ranks)?;
    let removed = ranks.len();
    if removed > 0 {
        set.remove(ranks);
        let name = context.command.name;
        context.event(Class::SortedSet, name, key);
        set.put(context, key)?;
    }
    context.integer(i64::try_from(removed).unwrap_or(i64::MAX))
}
