//! ZPOPMIN, ZPOPMAX, ZMPOP: the members at one end are removed and returned.

use std::ops::Range;

use pando_resp::Version;

use super::describe::{REMOVING, writing};
use super::order::SortedSet;
use super::replying;
use crate::commands::popping::Popping;
use crate::context::{
    Command, Context, Flags, Found, Interrupted, Keys, ListEnd, Part, Run, replies,
};
use crate::data::packed::Encoding;
use crate::notifications::classes::Class;

const COMPLEXITY: &str = "O(log(N)*M) with N being the number of elements in the sorted set, and M \
     being the number of elements popped.";

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: REMOVING,
        complexity: COMPLEXITY,
        summary: "Returns the lowest-scoring members from a sorted set after removing them. \
                  Deletes the sorted set if the last member was popped.",
        ..writing("zpopmin", -2, "5.0.0", |context| pop(context, End::Lowest))
    },
    Command {
        flags: REMOVING,
        complexity: COMPLEXITY,
        summary: "Returns the highest-scoring members from a sorted set after removing them. \
                  Deletes the sorted set if the last member was popped.",
        ..writing("zpopmax", -2, "5.0.0", |context| pop(context, End::Highest))
    },
    Command {
        flags: Flags::WRITE.and(Flags::REMOVES),
        keys: Keys::NONE.and_counted(1),
        complexity: "O(K) + O(M*log(N)) where K is the number of provided keys, N being the \
                     number of elements in the sorted set, and M being the number of elements \
                     popped.",
        summary: "Returns the highest- or lowest-scoring members from one or more sorted sets \
                  after removing them. Deletes the sorted set if the last member was popped.",
        ..writing("zmpop", -4, "7.0.0", pop_first)
    },
];

/// A sorted set of so many elements is read whole, and can be packed again when it gets small.
const FEW: usize = 16;

/// Where members are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Lowest,
    Highest,
}

impl End {
    /// Returns the places of up to `count` of `length` elements.
    fn places(self, count: usize, length: usize) -> Range<usize> {
        let count = count.min(length);
        match self {
            Self::Lowest => 0..count,
            Self::Highest => length - count..length,
        }
    }

    /// Reads up to `count` elements of the sorted set at `key`, to be taken from it.
    pub(super) fn find(
        self,
        context: &mut Context<'_>,
        key: &[u8],
        count: usize,
    ) -> Result<SortedSet, Interrupted> {
        let found = context.find(key)?;
        self.of_found(context, found, count)
    }

    /// As [`End::find`], of the row that was read last.
    fn of_found(
        self,
        context: &mut Context<'_>,
        found: Found,
        count: usize,
    ) -> Result<SortedSet, Interrupted> {
        let places = |length| match length {
            0..=FEW => 0..length,
            _ => self.places(count, length),
        };
        SortedSet::found_part(context, found, &Part::Places(&places))
    }

    /// Returns the name of the event that a member was taken from it.
    fn popped(self) -> &'static str {
        match self {
            Self::Lowest => "zpopmin",
            Self::Highest => "zpopmax",
        }
    }

    /// Reads argument `index`: MIN or MAX.
    pub(super) fn at(context: &Context<'_>, index: usize) -> Result<Self, &'static str> {
        if context.is(index, "min") {
            Ok(Self::Lowest)
        } else if context.is(index, "max") {
            Ok(Self::Highest)
        } else {
            Err(replies::SYNTAX)
        }
    }
}

impl From<End> for ListEnd {
    fn from(end: End) -> Self {
        match end {
            End::Lowest => Self::Head,
            End::Highest => Self::Tail,
        }
    }
}

/// Removes up to `count` members, replies with them, and writes the rest.
pub(super) fn take(
    context: &mut Context<'_>,
    key: &[u8],
    mut set: SortedSet,
    (end, count): (End, usize),
    mut put: impl FnMut(&mut Context<'_>, (f64, &[u8])) -> Run,
) -> Run {
    let ranks = end.places(count, set.in_memory());
    for place in 0..count {
        let rank = match end {
            End::Lowest => place,
            End::Highest => ranks.end - 1 - place,
        };
        put(context, set.element(rank))?;
    }
    set.remove(ranks);
    context.event(Class::SortedSet, end.popped(), key);
    set.put(context, key)
}

fn pop(context: &mut Context<'_>, end: End) -> Run {
    if context.count() > 3 {
        return Err(replies::SYNTAX.into());
    }
    let count = match context.count() {
        3 => Some(context.number_from(2, 0, replies::MUST_BE_POSITIVE)?),
        _ => None,
    };
    let key = context.argument(1);
    let found = match count {
        Some(_) => context.find(key)?,
        None => match context.long_collection(key, Encoding::Skiplist)? {
            Err(found) => found,
            Ok(held) => {
                if context.pop_scored(key, (held, end.into()), reply_one)? {
                    context.event(Class::SortedSet, end.popped(), key);
                    return Ok(());
                }
                context.find(key)?
            }
        },
    };
    let set = end.of_found(context, found, count.unwrap_or(1))?;
    let taken = count.unwrap_or(1).min(set.len());
    // One element that was not counted is no list of pairs.
    let is_nested = count.is_some() && context.session.version == Version::Resp3;
    let length = if is_nested { taken } else { taken * 2 };
    context.reply().array(length);
    if taken == 0 {
        return Ok(());
    }
    take(context, key, set, (end, taken), |context, element| {
        if is_nested {
            return replying::element(context, element, true);
        }
        reply_flat(context, element)
    })
}

/// Replies with one element that was not counted.
fn reply_one(context: &mut Context<'_>, element: (f64, &[u8])) -> Run {
    context.reply().array(2);
    reply_flat(context, element)
}

/// Writes an element that is no pair.
fn reply_flat(context: &mut Context<'_>, (score, member): (f64, &[u8])) -> Run {
    context.reply().bulk(member);
    replying::score(context, score);
    context.check_reply()
}

/// Pops from the sorted set whose key is argument `at`; returns false if there is none.
pub(super) fn pop_from(
    context: &mut Context<'_>,
    at: usize,
    popping: &Popping<End>,
) -> Result<bool, Interrupted> {
    let key = context.argument(at);
    let set = popping.end.find(context, key, popping.count)?;
    if !set.exists() {
        return Ok(false);
    }
    let count = popping.count.min(set.len());
    context.reply().array(2);
    context.reply().bulk(key);
    context.reply().array(count);
    take(
        context,
        key,
        set,
        (popping.end, count),
        |context, element| {
            context.reply().array(2);
            context.reply().bulk(element.1);
            replying::score(context, element.0);
            context.check_reply()
        },
    )?;
    Ok(true)
}

/// Pops from the first sorted set that exists.
fn pop_first(context: &mut Context<'_>) -> Run {
    let popping = Popping::parse(context, 1, End::at)?;
    for at in popping.keys.clone() {
        if pop_from(context, at, &popping)? {
            return Ok(());
        }
    }
    context.reply().null_array();
    Ok(())
}
