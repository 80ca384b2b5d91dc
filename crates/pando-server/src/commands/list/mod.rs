//! Commands of lists, and what they share.

pub(super) mod edit;
pub(super) mod encoding;
pub(super) mod pop;
pub(super) mod position;
pub(super) mod push;
pub(super) mod read;
pub(super) mod transfer;
pub(super) mod waiting;

use std::ops::Range;

use crate::context::{
    Collection, Command, Context, Flags, Found, Group, Interrupted, ListEnd, Part, Run, replies,
};
use crate::data::keyspace::ValueType;
use crate::data::packed::Strings;

/// Returns a command that reads the list at its first argument.
const fn reading(name: &'static str, arity: i32, run: fn(&mut Context<'_>) -> Run) -> Command {
    Command {
        flags: Flags::READONLY,
        group: Group::List,
        value_type: Some(ValueType::List),
        ..Command::read(name, arity, run)
    }
}

/// Returns a command that writes the list at its first argument.
const fn writing(name: &'static str, arity: i32, run: fn(&mut Context<'_>) -> Run) -> Command {
    Command {
        flags: Flags::WRITE,
        group: Group::List,
        value_type: Some(ValueType::List),
        ..Command::write(name, arity, run)
    }
}

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Head,
    Tail,
}

impl End {
    /// Reads argument `index`: LEFT or RIGHT.
    fn at(context: &Context<'_>, index: usize) -> Result<Self, &'static str> {
        if context.is(index, "left") {
            Ok(Self::Head)
        } else if context.is(index, "right") {
            Ok(Self::Tail)
        } else {
            Err(replies::SYNTAX)
        }
    }

    /// Returns the places of up to `count` elements at this end of a list of `length` elements.
    fn places(self, count: usize, length: usize) -> Range<usize> {
        let count = count.min(length);
        match self {
            Self::Head => 0..count,
            Self::Tail => length - count..length,
        }
    }

    /// Returns the event of a list that gets elements at this end.
    fn pushed(self) -> &'static str {
        match self {
            Self::Head => "lpush",
            Self::Tail => "rpush",
        }
    }

    /// Returns the event of a list from whose end elements are taken.
    fn popped(self) -> &'static str {
        match self {
            Self::Head => "lpop",
            Self::Tail => "rpop",
        }
    }

    fn push(self, strings: &mut Strings, element: &[u8]) {
        match self {
            Self::Head => strings.insert(0, element),
            Self::Tail => strings.push(element),
        }
    }
}

impl From<End> for ListEnd {
    fn from(end: End) -> Self {
        match end {
            End::Head => Self::Head,
            End::Tail => Self::Tail,
        }
    }
}

/// A list of so many elements is read whole, and can be packed again when it gets small.
const FEW: usize = 16;

/// Reads the list at `key`, to be changed at the places that `places` returns for its length; of a
/// large one no more than those. Also returns these places among the elements that were read.
fn part(
    context: &mut Context<'_>,
    key: &[u8],
    places: impl Fn(usize) -> Range<usize>,
) -> Result<(Collection, Range<usize>), Interrupted> {
    let found = context.find(key)?;
    part_of(context, found, places)
}

/// As [`part`], of the list that was read last.
fn part_of(
    context: &mut Context<'_>,
    found: Found,
    places: impl Fn(usize) -> Range<usize>,
) -> Result<(Collection, Range<usize>), Interrupted> {
    let read = |length| match length {
        0..=FEW => 0..length,
        _ => places(length),
    };
    let list = context.decoded(found, ValueType::List, &Part::Places(&read))?;
    let places = among(places(list.len()), list.first(), list.in_memory())?;
    Ok((list, places))
}

/// Returns where the elements at these places are among so many that were read from the place
/// `first` on. A caller that knows the places from an earlier look at the list may ask for others:
/// behind SWAPDB or FLUSHDB it may be another list.
fn among(places: Range<usize>, first: usize, count: usize) -> Result<Range<usize>, Interrupted> {
    let (start, end) = (
        places.start.checked_sub(first),
        places.end.checked_sub(first),
    );
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= count => Ok(start..end),
        _ => Err(Interrupted::Torn),
    }
}

/// Returns the place of `index`, which counts from the end if it is negative.
fn place(index: i64, length: usize) -> Option<usize> {
    let place = match index < 0 {
        true => i64::try_from(length).ok()?.checked_add(index)?,
        false => index,
    };
    usize::try_from(place).ok().filter(|place| *place < length)
}

/// Returns the places from `start` to `end`, both included; negative ones count from the end.
fn places(start: i64, end: i64, length: usize) -> Range<usize> {
    let signed = i64::try_from(length).unwrap_or(i64::MAX);
    let absolute = |index: i64| match index < 0 {
        true => signed.saturating_add(index),
        false => index,
    };
    let (start, end) = (absolute(start).max(0), absolute(end).min(signed - 1));
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end => start..end + 1,
        _ => 0..0,
    }
}

/// Removes the elements at `places` and writes the list.
fn remove(context: &mut Context<'_>, key: &[u8], list: &mut Collection, at: Range<usize>) -> Run {
    list.strings.remove(at);
    encoding::shrink(list);
    context.put_collection(key, list)
}

fn reply_length(context: &mut Context<'_>, length: usize) -> Run {
    context.integer(i64::try_from(length).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::{End, Interrupted, among, place, places};

    #[test]
    fn places_are_those_of_redis() {
        assert_eq!(places(0, -1, 3), 0..3);
        assert_eq!(places(-2, -1, 3), 1..3);
        assert_eq!(places(-100, 100, 3), 0..3);
        assert_eq!(places(2, 1, 3), 0..0);
        assert_eq!(places(3, 5, 3), 0..0);
        assert_eq!(places(0, -4, 3), 0..0);
        assert_eq!(places(i64::MIN, i64::MAX, 3), 0..3);
        assert_eq!(places(i64::MAX, i64::MIN, 3), 0..0);
        assert_eq!(places(0, -1, 0), 0..0);
        assert_eq!(place(-3, 3), Some(0));
        assert_eq!((place(-4, 3), place(3, 3)), (None, None));
        assert_eq!((place(i64::MIN, 3), place(i64::MAX, 3)), (None, None));
        assert_eq!(End::Tail.places(usize::MAX, 3), 0..3);
        assert_eq!(End::Tail.places(1, 3), 2..3);
    }

    #[test]
    fn places_are_among_what_was_read() {
        assert!(matches!(among(7..9, 5, 4), Ok(of) if of == (2..4)));
        assert!(matches!(among(0..0, 0, 0), Ok(of) if of == (0..0)));
        // It ends before, begins behind, or is gone.
        for (places, first, count) in [(7..9, 5, 3), (4..6, 5, 4), (0..5, 0, 0)] {
            assert!(matches!(
                among(places, first, count),
                Err(Interrupted::Torn)
            ));
        }
    }
}
