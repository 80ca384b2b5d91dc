//! SINTER, SUNION, SDIFF, their forms that store the result, and SINTERCARD.

use super::members::Members;
use super::{reading, writing};
use crate::context::{
    Collection, Command, Context, Flags, Found, Input, Interrupted, Keys, Kind, Rule, Run, Stored,
    is_too_long, replies,
};
use crate::data::combination::{Aggregate, Operation};
use crate::data::keyspace::ValueType;
use crate::data::shown_merge::ShownMembers;
use crate::notifications::classes::Class;

const OF_MANY: &str = "O(N*M) worst case where N is the cardinality of the smallest set and M is \
                       the number of sets.";
const OF_ALL: &str = "O(N) where N is the total number of elements in all given sets.";

const fn replying(
    name: &'static str,
    complexity: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::READONLY,
        keys: Keys::ALL,
        kind: Kind::ReadMany,
        complexity,
        ..reading(name, -2, "1.0.0", run, summary)
    }
}

const fn storing(
    name: &'static str,
    complexity: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: Keys::ALL,
        complexity,
        ..writing(name, -3, "1.0.0", run, summary)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    replying(
        "sinter",
        OF_MANY,
        |context| show(context, Operation::Intersection),
        "Returns the intersect of multiple sets.",
    ),
    replying(
        "sunion",
        OF_ALL,
        |context| show(context, Operation::Union),
        "Returns the union of multiple sets.",
    ),
    replying(
        "sdiff",
        OF_ALL,
        |context| show(context, Operation::Difference),
        "Returns the difference of multiple sets.",
    ),
    storing(
        "sinterstore",
        OF_MANY,
        |context| store(context, Operation::Intersection),
        "Stores the intersect of multiple sets in a key.",
    ),
    storing(
        "sunionstore",
        OF_ALL,
        |context| store(context, Operation::Union),
        "Stores the union of multiple sets in a key.",
    ),
    storing(
        "sdiffstore",
        OF_ALL,
        |context| store(context, Operation::Difference),
        "Stores the difference of multiple sets in a key.",
    ),
    Command {
        flags: Flags::READONLY,
        keys: Keys::NONE.and_counted(1),
        kind: Kind::ReadMany,
        complexity: OF_MANY,
        ..reading(
            "sintercard",
            -3,
            "7.0.0",
            cardinality,
            "Returns the number of members of the intersect of multiple sets.",
        )
    },
];

/// Memory that a member takes besides its bytes, about.
const MEMBER_BYTES: usize = 48;

/// Looks at the sets whose keys are the arguments at `from` to `to`.
fn inputs(
    context: &mut Context<'_>,
    (from, to): (usize, usize),
    operation: Operation,
) -> Result<Vec<Input>, Interrupted> {
    let mut inputs = context.inputs(from..to, &[ValueType::Set])?;
    if operation == Operation::Intersection {
        inputs.sort_by_key(Input::len);
    }
    Ok(inputs)
}

/// Combines sets. Returns the result, at most `most` members of it, in the set `empty`.
fn combined(
    context: &mut Context<'_>,
    inputs: Vec<Input>,
    operation: Operation,
    (empty, most): (Collection, usize),
) -> Result<Members, Interrupted> {
    match operation {
        Operation::Union => united(context, inputs, empty),
        Operation::Intersection => kept(context, inputs, (true, most), empty),
        Operation::Difference => kept(context, inputs, (false, most), empty),
    }
}

/// Refuses the command if sets of so many bytes are in memory at once, with an index of their
/// members.
fn check(context: &Context<'_>, set: &Collection, before: usize) -> Result<usize, Interrupted> {
    let bytes = before + set.strings.bytes() + MEMBER_BYTES * set.in_memory();
    match bytes > context.engine().reply_bytes_max {
        true => Err(replies::TOO_MANY_LONG_SETS.into()),
        false => Ok(bytes),
    }
}

fn united(
    context: &mut Context<'_>,
    inputs: Vec<Input>,
    empty: Collection,
) -> Result<Members, Interrupted> {
    let (mut sets, mut bytes) = (Vec::new(), 0);
    for input in inputs {
        let set = context.whole_input(input)?;
        bytes = check(context, &set, bytes)?;
        sets.push(set);
    }
    let total = sets.iter().map(Collection::len).sum();
    let mut result = Members::new(empty, total);
    for set in &sets {
        set.strings.iter().for_each(|member| {
            result.add(member);
        });
    }
    Ok(result)
}

/// Returns the members of the first set that all others have (`wanted`), or none of them.
fn kept(
    context: &mut Context<'_>,
    inputs: Vec<Input>,
    (wanted, most): (bool, usize),
    empty: Collection,
) -> Result<Members, Interrupted> {
    let mut inputs = inputs.into_iter();
    let first = inputs.next().expect("the command has a key");
    let first = context.whole_input(first)?;
    let bytes = check(context, &first, 0)?;
    let mut left: Vec<&[u8]> = first.strings.iter().collect();
    for input in inputs {
        if left.is_empty() {
            break;
        }
        let other = context.named_input(input, &left)?;
        check(context, &other, bytes)?;
        let other = Members::new(other, left.len());
        left.retain(|member| other.has(member) == wanted);
    }
    left.truncate(most);
    let mut result = Members::new(empty, left.len());
    for member in left {
        result.add(member);
    }
    Ok(result)
}

fn show(context: &mut Context<'_>, operation: Operation) -> Run {
    if context.goes_on_large()? {
        return Ok(());
    }
    let empty = context.replacement(&Found::default(), ValueType::Set);
    let arguments = (1, context.count());
    let sets = inputs(context, arguments, operation)?;
    let rule = Rule {
        value_type: ValueType::Set,
        operation,
        aggregate: Aggregate::Sum,
    };
    let how = (&rule, ShownMembers::Unsorted);
    context.ask_for_merged(&sets, how, false)?;
    let result = match combined(context, sets, operation, (empty, usize::MAX)) {
        Err(interrupted) if is_too_long(&interrupted) => {
            let sets = inputs(context, arguments, operation)?;
            context.ask_for_merged(&sets, how, true)?;
            return Err(interrupted);
        }
        result => result?,
    };
    let mut reply = context.reply();
    reply.set(result.len());
    result.iter().for_each(|member| reply.bulk(member));
    context.check_reply()
}

fn store(context: &mut Context<'_>, operation: Operation) -> Run {
    let key = context.argument(1);
    let inputs = inputs(context, (2, context.count()), operation)?;
    let rule = Rule {
        value_type: ValueType::Set,
        operation,
        aggregate: Aggregate::Sum,
    };
    let empty = context.replacement(&Found::default(), ValueType::Set);
    let mut result = match context.put_merged(key, &inputs, &rule)? {
        Some(Stored::Written(length)) => {
            context.event(Class::Set, context.command.name, key);
            return context.integer(i64::try_from(length).unwrap_or(i64::MAX));
        }
        Some(Stored::Little(members)) => {
            let mut result = Members::new(empty, members.len());
            members.iter().for_each(|member| {
                result.add(member);
            });
            result
        }
        None => combined(context, inputs, operation, (empty, usize::MAX))?,
    };
    let found = context.find_any_head(key)?;
    let was_there = found.row;
    result.set.found = context.replacement(&found, ValueType::Set).found;
    if result.len() == 0 {
        result.set.found.row = was_there;
    }
    let length = result.len();
    context.put_collection(key, &result.set)?;
    if length > 0 {
        let name = context.command.name;
        context.event(Class::Set, name, key);
    }
    context.integer(i64::try_from(length).unwrap_or(i64::MAX))
}

fn cardinality(context: &mut Context<'_>) -> Run {
    if context.goes_on_large()? {
        return Ok(());
    }
    let of_keys = context.integer_at(1);
    let Some(count) = of_keys.ok().and_then(|count| usize::try_from(count).ok()) else {
        return context.fail("ERR numkeys should be greater than 0");
    };
    if count == 0 {
        return context.fail("ERR numkeys should be greater than 0");
    }
    if count > context.count() - 2 {
        return context.fail("ERR Number of keys can't be greater than number of args");
    }
    let (mut most, mut at) = (usize::MAX, 2 + count);
    while at < context.count() {
        if !context.is(at, "limit") || at + 1 >= context.count() {
            return Err(replies::SYNTAX.into());
        }
        match context.integer_at(at + 1).map(usize::try_from) {
            Ok(Ok(0)) => most = usize::MAX,
            Ok(Ok(limit)) => most = limit,
            _ => return context.fail("ERR LIMIT can't be negative"),
        }
        at += 2;
    }
    let empty = context.replacement(&Found::default(), ValueType::Set);
    let arguments = (2, 2 + count);
    let sets = inputs(context, arguments, Operation::Intersection)?;
    let rule = Rule {
        value_type: ValueType::Set,
        operation: Operation::Intersection,
        aggregate: Aggregate::Sum,
    };
    let how = (&rule, ShownMembers::Count(most));
    context.ask_for_merged(&sets, how, false)?;
    let result = match combined(context, sets, Operation::Intersection, (empty, most)) {
        Err(interrupted) if is_too_long(&interrupted) => {
            let sets = inputs(context, arguments, Operation::Intersection)?;
            context.ask_for_merged(&sets, how, true)?;
            return Err(interrupted);
        }
        result => result?,
    };
    context.integer(i64::try_from(result.len()).unwrap_or(i64::MAX))
}
