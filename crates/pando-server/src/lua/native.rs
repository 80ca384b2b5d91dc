//! How native functions of the sandbox take arguments and return.
//!
//! A native function returns `true` and its values; or `nil` and the text of an error; or `false`
//! and the text of an error that is to say where it is. The sandbox raises these: an error that
//! Rust raises would be an object that scripts cannot read.

use mlua::{IntoLua, Lua, MultiValue, Value};

/// What a native function returns: see the head of this file.
pub(crate) type Native = mlua::Result<MultiValue>;

/// Returns the values of a native function that has worked.
pub(crate) fn returned(lua: &Lua, value: impl IntoLua) -> Native {
    let values = vec![Value::Boolean(true), value.into_lua(lua)?];
    Ok(MultiValue::from_vec(values))
}

/// Returns those of one that has failed; its error has a code.
pub(crate) fn refused(lua: &Lua, text: &str) -> Native {
    Ok([Value::Nil, text.into_lua(lua)?].into_iter().collect())
}

/// Returns those of one that has failed; its error says where the script has called it.
pub(super) fn failed(lua: &Lua, text: &str) -> Native {
    Ok([Value::Boolean(false), text.into_lua(lua)?]
        .into_iter()
        .collect())
}

/// Returns those of one whose run is ended: the sandbox asks for that, and raises its own error.
pub(super) fn ended(lua: &Lua) -> Native {
    failed(lua, "the script is ended")
}

/// Returns the values of a native function that has worked and has none.
pub(super) fn nothing() -> Native {
    Ok([Value::Boolean(true)].into_iter().collect())
}

/// Returns a number, or the number that a string is, as Lua takes arguments.
pub(super) fn number(lua: &Lua, value: Option<&Value>) -> mlua::Result<Option<f64>> {
    match value {
        Some(Value::Integer(number)) => Ok(Some(*number as f64)),
        Some(Value::Number(number)) => Ok(Some(*number)),
        Some(text @ Value::String(_)) => lua.coerce_number(text.clone()),
        _ => Ok(None),
    }
}

/// Returns the bytes of a string, or of the text of a number, as Lua takes arguments.
pub(super) fn text(lua: &Lua, value: &Value) -> mlua::Result<Option<mlua::LuaString>> {
    match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => lua.coerce_string(value.clone()),
        _ => Ok(None),
    }
}

/// Returns a text as far as C reads it, which Redis is written in.
pub(crate) fn until_zero(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == 0);
    &text[..end.unwrap_or(text.len())]
}
