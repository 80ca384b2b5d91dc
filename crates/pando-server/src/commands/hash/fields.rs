//! What the commands for deadlines of fields have in common: fields behind FIELDS, and times.

use pando_resp::parse_integer;

use crate::commands::expire::Expire;
use crate::context::{Context, Interrupted, replies};

/// The reply if the number of fields is none.
pub(super) const FIELDS_COUNT: &str = "ERR Number of fields must be a positive integer";
const FIELDS_MISSING: &str =
    "ERR Mandatory argument FIELDS is missing or not at the right position";
const FIELDS_MATCH: &str = "ERR The `numfields` parameter must match the number of arguments";
const TIME_IS_NEGATIVE: &str = "ERR invalid expire time, must be >= 0";

/// The latest deadline that a field may have, in milliseconds since 1970: that of Redis.
const DEADLINE_MAX: u64 = (1 << 46) - 1;

/// Returns the fields behind FIELDS at argument `at` and their number; all arguments behind it.
/// `count_text` is the reply if that is no number of fields.
pub(super) fn fields_at<'a>(
    context: &Context<'a>,
    at: usize,
    count_text: &'static str,
) -> Result<Vec<&'a [u8]>, Interrupted> {
    if at + 1 >= context.count() || !context.is(at, "fields") {
        return Err(FIELDS_MISSING.into());
    }
    match parse_integer(context.argument(at + 1)) {
        Some(count) if count > 0 => match usize::try_from(count) == Ok(context.count() - at - 2) {
            true => Ok(context.arguments.from(at + 2).collect()),
            false => Err(FIELDS_MATCH.into()),
        },
        _ => Err(count_text.into()),
    }
}

/// Returns argument `at` as a deadline of fields.
pub(super) fn deadline_at(
    context: &Context<'_>,
    unit: Expire,
    at: usize,
) -> Result<u64, Interrupted> {
    let number = context.integer_at(at)?;
    let number = u64::try_from(number).map_err(|_| TIME_IS_NEGATIVE)?;
    let scale = match unit {
        Expire::Seconds | Expire::SecondsAt => 1000,
        Expire::Milliseconds | Expire::MillisecondsAt => 1,
    };
    let base = match unit {
        Expire::Seconds | Expire::Milliseconds => context.now_ms,
        Expire::SecondsAt | Expire::MillisecondsAt => 0,
    };
    let deadline = number
        .checked_mul(scale)
        .and_then(|of| of.checked_add(base));
    let deadline = deadline.filter(|deadline| *deadline <= DEADLINE_MAX);
    deadline.ok_or_else(|| replies::invalid_expire(context.command.name).into())
}
