//! What the sandbox searches long texts with, in which LuaJIT's own functions might not end for
//! years: they do not look at the clock (decision 101).
//!
//! Which texts are long depends on the pattern. The functions here are slower, since values of Lua
//! become values of Rust and the reverse.

use std::rc::Rc;

use memchr::memmem;
use mlua::{Lua, LuaString, MultiValue, Table, Value};

use super::guard::Guard;
use super::native::{Native, failed, returned};
use super::pattern::{Capture, Search, Stop, longest_text};

/// Steps of a search that LuaJIT may make at once; some nanoseconds each.
const STEPS_UNSEEN: f64 = 16_384.0;
/// Those that it may make if the clock is looked at after some searches.
const STEPS_SEEN: f64 = 1_048_576.0;

/// What `seek` is asked for: sums of these.
const ANCHORS: u32 = 1;
/// The captures are not all used: one that is not finished is nil, and their number comes first.
const PERHAPS_USED: u32 = 2;

/// Returns a table with the functions.
pub(super) fn table(lua: &Lua, guard: &Rc<Guard>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let lengths = |_: &Lua, pattern: LuaString| {
        let pattern = &*pattern.as_bytes();
        let longest = |steps| longest_text(pattern, steps);
        Ok((longest(STEPS_UNSEEN), longest(STEPS_SEEN)))
    };
    table.raw_set("lengths", lua.create_function(lengths)?)?;
    let of_look = guard.clone();
    let look = move |_: &Lua, ()| Ok(of_look.look());
    table.raw_set("look", lua.create_function(look)?)?;
    let of_seek = guard.clone();
    let seek = move |lua: &Lua, arguments: Asked| seek(lua, &of_seek, &arguments);
    table.raw_set("seek", lua.create_function(seek)?)?;
    let plain = |lua: &Lua, (text, part, init, ()): Asked<()>| {
        let (text, part) = (text.as_bytes(), part.as_bytes());
        let from = start(init, text.len());
        // It takes time that is linear, as copying a string does.
        let found = memmem::find(&text[from..], &part);
        returned(lua, found.map(|at| from + at + 1))
    };
    table.raw_set("seek_plain", lua.create_function(plain)?)?;
    Ok(table)
}

/// Text, pattern, where to begin, and what is wanted.
type Asked<T = u32> = (LuaString, LuaString, f64, T);

/// Returns the offset that a place means, which is below zero if it counts from the end.
fn start(init: f64, length: usize) -> usize {
    let is_inside = init > -2_147_483_649.0 && init < 2_147_483_648.0;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is inside, and is cut off"
    )]
    let init = if is_inside { init as i64 } else { i64::MIN };
    match (usize::try_from(init), usize::try_from(init.unsigned_abs())) {
        (Ok(place), _) => place.saturating_sub(1).min(length),
        (_, Ok(back)) => length.saturating_sub(back),
        _ => 0,
    }
}

/// Returns where the first match begins and ends, and its captures; nil if there is none.
fn seek(lua: &Lua, guard: &Guard, (text, pattern, init, wanted): &Asked) -> Native {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let is_over = || guard.look();
    let mut search = Search::new(&text, &pattern, &is_over);
    let from = start(*init, text.len());
    let found = match search.first(from, wanted & ANCHORS != 0) {
        Ok(Some(found)) => found,
        Ok(None) => return returned(lua, Value::Nil),
        Err(Stop::Wrong(problem)) => return failed(lua, problem),
        // The sandbox asks whether the run is ended.
        Err(Stop::Ended) => return failed(lua, "the search was ended"),
    };
    let number = |place: usize| Value::Number(place as f64);
    let mut values = vec![
        Value::Boolean(true),
        number(found.start + 1),
        number(found.end),
    ];
    let is_lazy = wanted & PERHAPS_USED != 0;
    if is_lazy {
        values.push(number(search.captures().len()));
    }
    for capture in search.captures() {
        values.push(match capture {
            Capture::Bytes(start, end) => Value::String(lua.create_string(&text[*start..*end])?),
            Capture::Position(at) => number(at + 1),
            Capture::Unfinished(_) if is_lazy => Value::Nil,
            Capture::Unfinished(_) => return failed(lua, "unfinished capture"),
        });
    }
    Ok(MultiValue::from_vec(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_lua() {
        for (init, expected) in [
            (1.0, 0),
            (0.0, 0),
            (2.9, 1),
            (-1.0, 9),
            (-10.0, 0),
            (-11.0, 0),
            (11.0, 10),
            (1e9, 10),
            (1e300, 0),
            (f64::NAN, 0),
            (f64::NEG_INFINITY, 0),
        ] {
            assert_eq!(start(init, 10), expected, "{init}");
        }
    }
}
