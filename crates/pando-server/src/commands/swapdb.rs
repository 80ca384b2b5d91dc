//! SWAPDB: two databases change places, in one commit, whatever their size (decision 096).
//!
//! The three tables of a database are swapped together, so both have to have all of them. A
//! transaction or a script that swaps databases would have to read and write in their new places
//! before anybody else does; so neither may.

use pandodb::Table;

use crate::context::{Command, Context, Flags, Keys, Kind, Run, replies};
use crate::data::keyspace::DATABASES;

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: Flags::WRITE
        .and(Flags::FAST)
        .and(Flags::NO_MULTI)
        .and(Flags::NO_INTERACTIVE),
    keys: Keys::NONE,
    kind: Kind::Transaction,
    since: "4.0.0",
    summary: "Swaps two Redis databases.",
    ..Command::new("swapdb", 3, swap)
}];

/// Returns the number that argument `index` names; `invalid` is the error if it is none.
fn number_at(
    context: &Context<'_>,
    index: usize,
    invalid: &'static str,
) -> Result<i32, &'static str> {
    let number = context.integer_at(index).ok();
    let number = number.and_then(|number| i32::try_from(number).ok());
    number.ok_or(invalid)
}

/// Returns the numbers of both databases.
fn databases(context: &Context<'_>) -> Result<[usize; 2], &'static str> {
    let first = number_at(context, 1, "ERR invalid first DB index")?;
    let second = number_at(context, 2, "ERR invalid second DB index")?;
    let database = |number: i32| {
        let number = usize::try_from(number).ok();
        let number = number.filter(|number| *number < DATABASES);
        number.ok_or(replies::DATABASE_OUT_OF_RANGE)
    };
    Ok([database(first)?, database(second)?])
}

fn swap(context: &mut Context<'_>) -> Run {
    let numbers = match databases(context) {
        Ok(numbers) => numbers,
        Err(text) => return context.fail(text),
    };
    if numbers[0] == numbers[1] {
        return context.ok();
    }
    let mut tables: [Vec<&Table>; 2] = Default::default();
    for (number, tables) in numbers.into_iter().zip(&mut tables) {
        // Otherwise it could be made, and get elements, until the others are swapped.
        let members = context.in_database(number, Context::make_members)?;
        let database = &context.engine().databases[number];
        tables.extend([&database.keys, &database.elements, members]);
    }
    let batch = context.data().batch.as_deref_mut();
    let batch = batch.expect("commands that write have a transaction");
    for (first, second) in tables[0].iter().zip(&tables[1]) {
        batch.swap_tables(first, second);
    }
    // Keys that clients wait for may be there now, and groups may be gone.
    context.progress.pushed.add_all();
    context.progress.written.add_all();
    context.ok()
}
