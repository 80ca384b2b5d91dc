//! The library `cjson`. What changes its behaviour takes the values that are its defaults, and
//! refuses others.

use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::guard::Guard;
use super::json_decode::Decoder;
use super::json_encode::{Encoder, Problem};
use super::native::{Native, ended, failed, returned, text};

/// Returns a table with the functions.
pub(super) fn table(lua: &Lua, guard: &Rc<Guard>, out_max: usize) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let next: Function = lua.globals().raw_get("next")?;
    let of_encode = guard.clone();
    let encode = move |lua: &Lua, arguments: MultiValue| {
        let (Some(value), 1) = (arguments.front(), arguments.len()) else {
            return failed(lua, "bad argument #1 to 'encode' (expected 1 argument)");
        };
        let mut encoder = Encoder {
            out: Vec::new(),
            out_max,
            next: &next,
        };
        match encoder.encode(value) {
            Ok(()) if of_encode.look_behind(encoder.out.len()) => ended(lua),
            Ok(()) => returned(lua, lua.create_string(&encoder.out)?),
            Err(problem) => told(lua, problem),
        }
    };
    table.raw_set("encode", lua.create_function(encode)?)?;
    let of_decode = guard.clone();
    let decode = move |lua: &Lua, arguments: MultiValue| {
        let (Some(value), 1) = (arguments.front(), arguments.len()) else {
            return failed(lua, "bad argument #1 to 'decode' (expected 1 argument)");
        };
        let Some(text) = text(lua, value)? else {
            let found = value.type_name();
            let text = format!("bad argument #1 to 'decode' (string expected, got {found})");
            return failed(lua, &text);
        };
        match Decoder::new(lua, &text.as_bytes()).decode() {
            Ok(_) if of_decode.look_behind(text.as_bytes().len()) => ended(lua),
            Ok(value) => returned(lua, value),
            Err(problem) => told(lua, problem),
        }
    };
    table.raw_set("decode", lua.create_function(decode)?)?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}

fn told(lua: &Lua, problem: Problem) -> Native {
    match problem {
        Problem::Text(text) => failed(lua, &text),
        Problem::Lua(error) => Err(error),
    }
}
