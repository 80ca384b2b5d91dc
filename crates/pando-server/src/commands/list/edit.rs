//! LSET, LINSERT, LREM, LTRIM.

use super::{encoding, part, place, places, remove, reply_length, writing};
use crate::context::{Command, Context, Flags, Run, replies};
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: Flags::WRITE.and(Flags::DENYOOM),
        complexity: "O(N) where N is the length of the list. Setting either the first or the last \
                     element of the list is O(1).",
        summary: "Sets the value of an element in a list by its index.",
        ..writing("lset", 4, set)
    },
    Command {
        since: "2.2.0",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        complexity: "O(N) where N is the number of elements to traverse before seeing the value \
                     pivot. This means that inserting somewhere on the left end on the list (head) \
                     can be considered O(1) and inserting somewhere on the right end (tail) is \
                     O(N).",
        summary: "Inserts an element before or after another element in a list.",
        ..writing("linsert", 5, insert)
    },
    Command {
        complexity: "O(N+M) where N is the length of the list and M is the number of elements \
                     removed.",
        summary: "Removes elements from a list. Deletes the list if the last element was removed.",
        ..writing("lrem", 4, remove_equal)
    },
    Command {
        complexity: "O(N) where N is the number of elements to be removed by the operation.",
        summary: "Removes elements from both ends a list. Deletes the list if all elements were \
                  trimmed.",
        flags: Flags::WRITE.and(Flags::REMOVES),
        ..writing("ltrim", 4, trim)
    },
];

fn set(context: &mut Context<'_>) -> Run {
    let (key, element) = (context.argument(1), context.argument(3));
    let found = context.find(key)?;
    if found.row.is_none() {
        return Err(replies::NO_SUCH_KEY.into());
    }
    let index = context.integer_at(2)?;
    let at = |length| place(index, length).map_or(0..0, |place| place..place + 1);
    let (mut list, at) = part(context, key, at)?;
    if at.is_empty() {
        return Err("ERR index out of range".into());
    }
    encoding::grow(&mut list, 1, element.len() as u64);
    list.strings.set(at.start, element);
    encoding::shrink(&mut list);
    context.put_collection(key, &list)?;
    context.event(Class::List, "lset", key);
    context.ok()
}

fn insert(context: &mut Context<'_>) -> Run {
    let behind = match (context.is(2, "after"), context.is(2, "before")) {
        (true, _) => 1,
        (_, true) => 0,
        _ => return Err(replies::SYNTAX.into()),
    };
    let (key, pivot, element) = (
        context.argument(1),
        context.argument(3),
        context.argument(4),
    );
    let mut list = context.collection(key)?;
    if !list.exists() {
        return context.integer(0);
    }
    let Some(place) = list.strings.find(pivot, 1) else {
        return context.integer(-1);
    };
    encoding::grow(&mut list, 1, element.len() as u64);
    list.strings.insert(place + behind, element);
    context.put_collection(key, &list)?;
    context.event(Class::List, "linsert", key);
    reply_length(context, list.len())
}

fn remove_equal(context: &mut Context<'_>) -> Run {
    let (key, element) = (context.argument(1), context.argument(3));
    let count = context.integer_at(2)?;
    let mut list = context.collection(key)?;
    let elements = list.strings.iter().enumerate();
    let equal = elements.filter(|(_, other)| *other == element);
    let mut removed: Vec<usize> = equal.map(|(place, _)| place).collect();
    let most = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count > 0 {
        removed.truncate(most);
    } else if count < 0 {
        removed.drain(..removed.len().saturating_sub(most));
    }
    if removed.is_empty() {
        return context.integer(0);
    }
    let mut next = removed.iter().copied().peekable();
    let keeps = |place: usize| next.next_if_eq(&place).is_none();
    list.strings.retain(keeps);
    encoding::shrink(&mut list);
    context.event(Class::List, "lrem", key);
    context.put_collection(key, &list)?;
    reply_length(context, removed.len())
}

fn trim(context: &mut Context<'_>) -> Run {
    let (start, end) = (context.integer_at(2)?, context.integer_at(3)?);
    let key = context.argument(1);
    let found = context.find(key)?;
    let length = context.length(&found)?;
    let kept = places(start, end, length);
    if length > 0 {
        // Also if nothing goes, as Redis does.
        context.event(Class::List, "ltrim", key);
    }
    if kept.is_empty() && length > 0 {
        context.remove(key, &found)?;
        context.event(Class::Generic, "del", key);
        return context.ok();
    }
    // The tail first: the places of what is before it stay.
    for gone in [kept.end..length, 0..kept.start] {
        if !gone.is_empty() {
            let (mut list, gone) = part(context, key, |_| gone.clone())?;
            remove(context, key, &mut list, gone)?;
        }
    }
    context.ok()
}
