//! LSET, LINSERT, LREM, LTRIM.

use super::{End, FEW, encoding, part, part_of, place, places, remove, reply_length, writing};
use crate::context::{
    Collection, Command, Context, Flags, Found, Interrupted, Part, Run, Sought, replies,
};
use crate::data::keyspace::ValueType;
use crate::data::packed::Encoding;
use crate::data::tree_head::TreeHead;
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

/// More elements that LTRIM removes at an end are not loaded.
const PART_MAX: usize = 1024;

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
    let found = context.find(key)?;
    if found.row.is_none() {
        return context.integer(0);
    }
    let Some((mut list, place)) = beside(context, found, (pivot, behind > 0))? else {
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
    let found = context.find(key)?;
    if let Some(head) = context.tree_head(&found)? {
        return remove_from_large(context, (key, head), found, count);
    }
    let mut list = context.decoded(found, ValueType::List, &Part::All)?;
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

/// Reads the list that was read last, as far as it has to be known to put something before the
/// first `pivot`, or behind it. Also returns the place of that among what was read; `None` if there
/// is none.
fn beside(
    context: &mut Context<'_>,
    found: Found,
    (pivot, is_behind): (&[u8], bool),
) -> Result<Option<(Collection, usize)>, Interrupted> {
    let head = context.tree_head(&found)?;
    // The length of a listpack is that of all of its elements.
    let is_listpack = encoding_of(context, &found)? == Encoding::Listpack;
    let Some(head) = head.filter(|_| !is_listpack) else {
        let list = context.decoded(found, ValueType::List, &Part::All)?;
        let place = list.strings.find(pivot, 1);
        return Ok(place.map(|place| (list, place)));
    };
    let places = context.search_list(head, &Sought::first(pivot))?;
    let Some(spot) = places.last() else {
        return Ok(None);
    };
    let list = context.decoded(found, ValueType::List, &Part::Beside(spot, is_behind))?;
    let place = spot.place_among(list.first(), &list.strings, pivot)?;
    Ok(Some((list, place)))
}

/// As [`remove_equal`], from a large list, which has this head: no more of it is in memory than
/// what changes.
fn remove_from_large(
    context: &mut Context<'_>,
    (key, head): (&[u8], TreeHead),
    found: Found,
    count: i64,
) -> Run {
    let most = match usize::try_from(count.unsigned_abs()) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(most) => most,
    };
    let rest_bytes_max = context.little_bytes(ValueType::List);
    let element = context.argument(3);
    let removed = context.find_equal(head, element, (most, count < 0), rest_bytes_max)?;
    if removed.count() == 0 {
        return context.integer(0);
    }
    context.event(Class::List, "lrem", key);
    let mut encoding = encoding_of(context, &found)?;
    if let Some(rest) = removed.rest() {
        let mut list = context.remade(&found, ValueType::List);
        (list.strings, list.encoding) = (rest.clone(), encoding);
        encoding::shrink(&mut list);
        // An empty list takes more bytes than a packed one may where `packed-bytes-max` is 0 or 1.
        if list.strings.len() == 0 || context.is_little(&list) {
            context.put_collection(key, &list)?;
            return reply_length(context, removed.count());
        }
        encoding = list.encoding;
    }
    context.put_removal(key, (&found, encoding), &removed)?;
    reply_length(context, removed.count())
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
    let mut is_unread = false;
    // The tail first: the places of what is before it stay.
    for gone in [kept.end..length, 0..kept.start] {
        if gone.is_empty() {
            continue;
        }
        let found = context.find(key)?;
        let head = context.tree_head(&found)?;
        if let Some(head) = head.filter(|_| gone.len() > PART_MAX) {
            let encoding = encoding_of(context, &found)?;
            let end = if gone.start == 0 {
                End::Head
            } else {
                End::Tail
            };
            let of_end = (end.into(), gone.len());
            context.trim_list(key, (&found, encoding), head, of_end)?;
            is_unread = true;
            continue;
        }
        let (mut list, gone) = part_of(context, found, |_| gone.clone())?;
        remove(context, key, &mut list, gone)?;
        is_unread = false;
    }
    if is_unread && kept.len() <= FEW {
        // As others do: it may be packed again.
        let (mut list, _) = part(context, key, |_| 0..0)?;
        remove(context, key, &mut list, 0..0)?;
    }
    context.ok()
}

/// Returns the encoding of the list that was read last.
fn encoding_of(context: &mut Context<'_>, found: &Found) -> Result<Encoding, Interrupted> {
    let encoding = found
        .row
        .map(|row| Encoding::of_payload(context.payload(row)));
    Ok(encoding.transpose()?.unwrap_or(Encoding::Quicklist))
}
