//! `math.random` and `math.randomseed`. All runs of a script that is called once have the same
//! numbers.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Table};

use super::guard::Guard;
use super::json_encode::name_of;
use super::native::{Native, failed, number, returned};
use super::random::Random;

/// Largest number that the generator returns.
const LARGEST: f64 = 2_147_483_647.0;

/// Returns a table with both functions.
pub(super) fn table(lua: &Lua, guard: &Rc<Guard>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let of_next = guard.clone();
    let next = move |lua: &Lua, arguments: MultiValue| next(lua, &of_next.random, &arguments);
    table.raw_set("random", lua.create_function(next)?)?;
    let of_seed = guard.clone();
    let seed = move |lua: &Lua, arguments: MultiValue| {
        let Some(seed) = number(lua, arguments.front())? else {
            let found = arguments.front().map_or("no value", name_of);
            let text = format!("bad argument #1 to 'randomseed' (number expected, got {found})");
            return failed(lua, &text);
        };
        of_seed.random.seed(low_32_bits(seed));
        returned(lua, mlua::Value::Nil)
    };
    table.raw_set("randomseed", lua.create_function(seed)?)?;
    Ok(table)
}

/// Returns what C makes of a number as a 32 bit integer.
fn low_32_bits(number: f64) -> u32 {
    let whole = number.trunc().rem_euclid(4_294_967_296.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is from 0 to 2^32 - 1, or no number and then 0"
    )]
    let bits = whole as u32;
    bits
}

fn next(lua: &Lua, random: &Random, arguments: &MultiValue) -> Native {
    let share = f64::from(random.next()) / LARGEST;
    // As in Redis: never 1, of whatever is drawn.
    let share = if share >= 1.0 { 0.0 } else { share };
    let bounds = [
        number(lua, arguments.front())?,
        number(lua, arguments.get(1))?,
    ];
    let (low, high) = match (arguments.len(), bounds) {
        (0, _) => return returned(lua, share),
        (1, [Some(high), _]) => (1.0, high.trunc()),
        (2, [Some(low), Some(high)]) => (low.trunc(), high.trunc()),
        (1 | 2, bounds) => {
            let place = usize::from(bounds[0].is_some());
            let found = arguments.get(place).map_or("no value", name_of);
            let place = place + 1;
            let text = format!("bad argument #{place} to 'random' (number expected, got {found})");
            return failed(lua, &text);
        }
        _ => return failed(lua, "wrong number of arguments"),
    };
    if low > high {
        let place = arguments.len();
        let text = format!("bad argument #{place} to 'random' (interval is empty)");
        return failed(lua, &text);
    }
    returned(lua, (share * (high - low + 1.0)).floor() + low)
}
