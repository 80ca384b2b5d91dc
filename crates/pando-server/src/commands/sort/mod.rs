//! SORT and SORT_RO.
//!
//! The elements, what they are sorted by and what is returned for them are all read in the
//! transaction of the command. Texts are ordered by their bytes, whatever the locale. Elements of
//! a set that are not sorted come in the order in which the set has them.

mod options;
mod order;
mod pattern;
mod weight;

use crate::commands::list;
use crate::context::{Collection, Command, Context, Flags, Found, Group, Interrupted, Kind, Run};
use crate::context::{Part, Stored, is_too_long, replies};
use crate::data::keyspace::ValueType;
use crate::data::packed::strings_of_one;
use crate::data::tree_head::TreeHead;
use crate::notifications::classes::Class;
use options::Options;
use order::{Order, Weights};
use pattern::{LookUps, Pattern, Value};

const COMPLEXITY: &str = "O(N+M*log(M)) where N is the number of elements in the list or set to \
                          sort, and M the number of returned elements. When the elements are not \
                          sorted, complexity is O(N).";

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: Flags::WRITE.and(Flags::DENYOOM),
        group: Group::Generic,
        value_type: None,
        complexity: COMPLEXITY,
        summary: "Sorts the elements in a list, a set, or a sorted set, optionally storing the \
                  result.",
        ..Command::write("sort", -2, |context| sort(context, true))
    },
    Command {
        since: "7.0.0",
        flags: Flags::READONLY,
        group: Group::Generic,
        value_type: None,
        kind: Kind::ReadMany,
        complexity: COMPLEXITY,
        summary: "Returns the sorted elements of a list, a set, or a sorted set.",
        ..Command::read("sort_ro", -2, |context| sort(context, false))
    },
];

fn sort(context: &mut Context<'_>, may_store: bool) -> Run {
    if context.goes_on_large()? {
        return Ok(());
    }
    let options = Options::parse(context, may_store)?;
    let key = context.argument(1);
    let found = context.read_partly(key)?;
    let value_type = found.row.map_or(ValueType::List, |row| row.value_type);
    if let ValueType::String | ValueType::Hash | ValueType::Stream = value_type {
        return Err(replies::WRONG_TYPE.into());
    }
    let order = options.order(value_type, context.progress.replies_in_memory);
    let Some(head) = context.tree_head(&found)? else {
        return sort_in_memory(context, (found, value_type), &options, &order);
    };
    let of_tree = (value_type, head);
    if sort_by_threads(context, (&options, &order), of_tree, false)? {
        return Ok(());
    }
    match sort_in_memory(context, (found, value_type), &options, &order) {
        Err(interrupted) if is_too_long(&interrupted) || is_too_much(&interrupted) => {
            match sort_by_threads(context, (&options, &order), of_tree, true)? {
                true => Ok(()),
                false => Err(interrupted),
            }
        }
        result => result,
    }
}

/// Has threads sort a large collection, if it is long or they `must`. Returns false if it is to be
/// sorted in memory.
fn sort_by_threads(
    context: &mut Context<'_>,
    (options, order): (&Options<'_>, &Order<'_>),
    of_tree: (ValueType, TreeHead),
    must: bool,
) -> Result<bool, Interrupted> {
    let (from, how) = (context.argument(1), options.how(order));
    let Some(key) = options.store else {
        context.ask_for_sorted(from, of_tree, how, must)?;
        return Ok(false);
    };
    let length = match context.put_sorted((key, from), of_tree, how, must)? {
        None => return Ok(false),
        Some(Stored::Little(strings)) => {
            let mut list = context.replacement(&Found::default(), ValueType::List);
            strings
                .iter()
                .for_each(|element| list.strings.push(element));
            put(context, key, list)?;
            return Ok(true);
        }
        Some(Stored::Written(length)) => length,
    };
    context.event(Class::List, "sortstore", key);
    context.integer(i64::try_from(length).unwrap_or(i64::MAX))?;
    Ok(true)
}

fn is_too_much(interrupted: &Interrupted) -> bool {
    matches!(interrupted, Interrupted::Refused(text) if text == pattern::TOO_MUCH)
}

/// Sorts the list, set or sorted set that was found; an empty list if there is none.
fn sort_in_memory(
    context: &mut Context<'_>,
    (found, value_type): (Found, ValueType),
    options: &Options<'_>,
    order: &Order<'_>,
) -> Run {
    let source = context.decoded(found, value_type, &Part::All)?;
    let mut look_ups = LookUps::default();
    let mut places: Vec<usize> = (0..source.strings.len())
        .step_by(strings_of_one(source.value_type))
        .collect();
    match order {
        Order::AsIs => {}
        Order::Reversed => places.reverse(),
        Order::Sorted { by, is_alpha } => {
            let how = (*by, *is_alpha);
            let weights = weights(context, &mut look_ups, &source, &places, how)?;
            weights.sort(&source.strings, &mut places, options.is_descending);
        }
    }
    let selected = &places[options.range(places.len())];
    match options.store {
        Some(key) => store(context, &mut look_ups, key, options, (&source, selected)),
        None => reply(context, &mut look_ups, options, (&source, selected)),
    }
}

/// Reads what the elements at `places` are sorted by.
fn weights(
    context: &mut Context<'_>,
    look_ups: &mut LookUps,
    source: &Collection,
    places: &[usize],
    (by, is_alpha): (Option<Pattern<'_>>, bool),
) -> Result<Weights, Interrupted> {
    if by.is_none() && is_alpha {
        return Ok(Weights::None);
    }
    let (mut numbers, mut texts, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut all_are_numbers = true;
    for place in places {
        let element = source.strings.at(*place);
        let value = match &by {
            Some(pattern) => look_ups.value(context, pattern, element)?.into_bytes()?,
            None => None,
        };
        if is_alpha {
            bytes += value.as_ref().map_or(0, Vec::len);
            if bytes > context.engine().reply_bytes_max {
                return Err(replies::TOO_MANY_LONG.into());
            }
            texts.push(value);
        } else {
            let own = by.is_none().then_some(element);
            let text = value.as_deref().or(own);
            let number = text.map_or(Some(0.0), weight::number);
            all_are_numbers &= number.is_some();
            numbers.push(number.unwrap_or(0.0));
        }
    }
    match (all_are_numbers, is_alpha) {
        (false, _) => Err("ERR One or more scores can't be converted into double".into()),
        (true, true) => Ok(Weights::Texts(texts)),
        (true, false) => Ok(Weights::Numbers(numbers)),
    }
}

fn reply(
    context: &mut Context<'_>,
    look_ups: &mut LookUps,
    options: &Options<'_>,
    (source, places): (&Collection, &[usize]),
) -> Run {
    let of_one = options.get.len().max(1);
    context.reply().array(places.len() * of_one);
    for place in places {
        let element = source.strings.at(*place);
        if options.get.is_empty() {
            context.reply().bulk(element);
        }
        for pattern in &options.get {
            match look_ups.value(context, pattern, element)? {
                Value::None => context.reply().null(),
                Value::Bytes(bytes) => context.reply().bulk(&bytes),
                Value::Long(found) => context.reply_found(&found)?,
            }
            context.check_reply()?;
        }
    }
    context.check_reply()
}

/// Replaces whatever `key` has by the list of what would be returned.
fn store(
    context: &mut Context<'_>,
    look_ups: &mut LookUps,
    key: &[u8],
    options: &Options<'_>,
    (source, places): (&Collection, &[usize]),
) -> Run {
    let mut list = context.replacement(&Found::default(), ValueType::List);
    let mut bytes = 0;
    for place in places {
        let element = source.strings.at(*place);
        if options.get.is_empty() {
            list.strings.push(element);
        }
        for pattern in &options.get {
            let value = look_ups.value(context, pattern, element)?.into_bytes()?;
            let value = value.unwrap_or_default();
            list.strings.push(&value);
            bytes += value.len();
            if bytes > context.engine().reply_bytes_max {
                return Err(replies::TOO_MANY_LONG.into());
            }
        }
    }
    put(context, key, list)
}

/// Replaces whatever `key` has by `list`.
fn put(context: &mut Context<'_>, key: &[u8], mut list: Collection) -> Run {
    context.check_room(&list)?;
    let found = context.find_any_head(key)?;
    let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
    if length == 0 {
        if found.row.is_some() {
            context.remove(key, &found)?;
            context.event(Class::Generic, "del", key);
        }
        return context.integer(0);
    }
    list.found.former = found.former;
    list::encoding::decide(&mut list);
    context.put_collection(key, &list)?;
    context.event(Class::List, "sortstore", key);
    context.integer(length)
}
