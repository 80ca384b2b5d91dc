//! HINCRBY, HINCRBYFLOAT.

use pando_resp::parse_integer;

use super::write::put_pair;
use super::{grow_encoding, writing};
use crate::commands::decimal::{Decimal, DecimalError};
use crate::context::{Command, Context, Part, Run, replies};
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    writing(
        "hincrby",
        4,
        "2.0.0",
        add,
        "Increments the integer value of a field in a hash by a number. Uses 0 as initial value \
         if the field doesn't exist.",
    ),
    writing(
        "hincrbyfloat",
        4,
        "2.6.0",
        add_float,
        "Increments the floating point value of a field by a number. Uses 0 as initial value if \
         the field doesn't exist.",
    ),
];

fn add(context: &mut Context<'_>) -> Run {
    let (key, field) = (context.argument(1), context.argument(2));
    let by = context.integer_at(3)?;
    let mut hash = context.find_part(key, &Part::Named(&[field]))?;
    let place = hash.strings.find(field, 2);
    let old = match place {
        Some(place) => parse_integer(hash.strings.at(place + 1)),
        None => Some(0),
    };
    let old = old.ok_or("ERR hash value is not an integer")?;
    let sum = old.checked_add(by).ok_or(replies::OVERFLOW)?;
    put_pair(
        &mut hash,
        place,
        field,
        itoa::Buffer::new().format(sum).as_bytes(),
    );
    grow_encoding(&mut hash);
    context.put_collection(key, &hash)?;
    context.event(Class::Hash, "hincrby", key);
    context.integer(sum)
}

fn add_float(context: &mut Context<'_>) -> Run {
    let (key, field) = (context.argument(1), context.argument(2));
    let by = Decimal::parse(context.argument(3)).map_err(|_| replies::NOT_A_FLOAT)?;
    if !by.is_finite() {
        return context.fail("ERR value is NaN or Infinity");
    }
    let mut hash = context.find_part(key, &Part::Named(&[field]))?;
    let place = hash.strings.find(field, 2);
    let old = match place {
        Some(place) => Decimal::parse(hash.strings.at(place + 1)),
        None => Decimal::parse(b"0"),
    };
    let sum = match old.and_then(|old| old.sum(by)) {
        Ok(sum) => sum,
        Err(DecimalError::NotANumber) => return context.fail("ERR hash value is not a float"),
        Err(DecimalError::NotFinite) => return context.fail(replies::NOT_FINITE),
    };
    put_pair(&mut hash, place, field, sum.as_bytes());
    grow_encoding(&mut hash);
    context.put_collection(key, &hash)?;
    context.event(Class::Hash, "hincrbyfloat", key);
    context.reply().bulk(sum.as_bytes());
    Ok(())
}
