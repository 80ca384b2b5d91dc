//! The library `struct`: values of Lua as the bytes of structures of C, as Redis has them.

use std::rc::Rc;

use mlua::{Lua, LuaString, MultiValue, Table, Value};

use super::guard::Guard;
use super::json_encode::name_of;
use super::native::{Native, ended, failed, returned, text};
use super::structure_format::{Format, Kind, Part};

/// Number of values that one call returns.
const VALUES_MAX: usize = 7000;

/// Why something is not packed or unpacked.
enum Problem {
    /// The text of the error.
    Text(String),
    Lua(mlua::Error),
}

impl From<mlua::Error> for Problem {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Returns a table with the functions.
pub(super) fn table(lua: &Lua, guard: &Rc<Guard>, out_max: usize) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let of_pack = guard.clone();
    let pack = move |lua: &Lua, arguments: MultiValue| {
        let of = Arguments::new(lua, "pack", &arguments);
        match pack(&of, out_max) {
            Ok(bytes) if of_pack.look_behind(bytes.len()) => ended(lua),
            Ok(bytes) => returned(lua, lua.create_string(bytes)?),
            Err(problem) => told(lua, problem),
        }
    };
    table.raw_set("pack", lua.create_function(pack)?)?;
    let unpack = |lua: &Lua, arguments: MultiValue| {
        let of = Arguments::new(lua, "unpack", &arguments);
        match unpack(&of) {
            Ok(mut values) => {
                values.insert(0, Value::Boolean(true));
                Ok(values.into_iter().collect())
            }
            Err(problem) => told(lua, problem),
        }
    };
    table.raw_set("unpack", lua.create_function(unpack)?)?;
    let size = |lua: &Lua, arguments: MultiValue| {
        let of = Arguments::new(lua, "size", &arguments);
        match size(&of) {
            Ok(size) => returned(lua, float(size as u64)),
            Err(problem) => told(lua, problem),
        }
    };
    table.raw_set("size", lua.create_function(size)?)?;
    Ok(table)
}

fn told(lua: &Lua, problem: Problem) -> Native {
    match problem {
        Problem::Text(text) => failed(lua, &text),
        Problem::Lua(error) => Err(error),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of Lua are floats: Redis loses the same bits"
)]
fn float(number: u64) -> f64 {
    number as f64
}

/// The arguments of a function of the library. Places are counted from 1.
struct Arguments<'a> {
    lua: &'a Lua,
    function: &'static str,
    values: &'a MultiValue,
    /// What an argument is called that is not there.
    absent: &'static str,
}

impl<'a> Arguments<'a> {
    fn new(lua: &'a Lua, function: &'static str, values: &'a MultiValue) -> Self {
        Self {
            lua,
            function,
            values,
            absent: "no value",
        }
    }

    /// Returns what is wrong with an argument.
    fn bad(&self, place: usize, why: &str) -> Problem {
        let function = self.function;
        Problem::Text(format!("bad argument #{place} to '{function}' ({why})"))
    }

    fn get(&self, place: usize) -> Option<&Value> {
        self.values.get(place - 1)
    }

    fn other(&self, place: usize, expected: &str) -> Problem {
        let found = self.get(place).map_or(self.absent, name_of);
        self.bad(place, &format!("{expected} expected, got {found}"))
    }

    fn string(&self, place: usize) -> Result<LuaString, Problem> {
        let found = self.get(place).unwrap_or(&Value::Nil);
        text(self.lua, found)?.ok_or_else(|| self.other(place, "string"))
    }

    fn number(&self, place: usize) -> Result<f64, Problem> {
        let found = self.get(place).unwrap_or(&Value::Nil).clone();
        let number = self.lua.coerce_number(found)?;
        number.ok_or_else(|| self.other(place, "number"))
    }

    fn invalid(&self, letter: u8) -> Problem {
        let letter = String::from_utf8_lossy(&[letter]).into_owned();
        self.bad(1, &format!("invalid format option '{letter}'"))
    }
}

/// Returns the low 64 bits that C makes of a number, on the machines that Redis runs on.
fn integer(number: f64) -> u64 {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is inside of the range"
    )]
    if (-TWO_TO_63..0.0).contains(&number) {
        (number as i64).cast_unsigned()
    } else if (0.0..2.0 * TWO_TO_63).contains(&number) {
        number as u64
    } else if number >= 2.0 * TWO_TO_63 {
        0
    } else {
        1 << 63
    }
}

fn pack(of: &Arguments<'_>, out_max: usize) -> Result<Vec<u8>, Problem> {
    let text = of.string(1)?;
    let text = text.as_bytes();
    // As Redis calls it.
    let of = &Arguments {
        absent: "nil",
        ..*of
    };
    let mut format = Format::new(&text);
    let mut out = Vec::new();
    let mut place = 2;
    while let Some(part) = format.part(out.len())? {
        if out.len() > out_max {
            let text = "not enough memory".to_owned();
            return Err(mlua::Error::MemoryError(text).into());
        }
        out.resize(out.len() + part.padding, 0);
        let is_value = !matches!(part.kind, Kind::Filler | Kind::Control);
        match part.kind {
            Kind::Unsigned | Kind::Signed => {
                let number = integer(of.number(place)?);
                let at = out.len();
                out.extend_from_slice(&number.to_le_bytes()[..part.size.min(8)]);
                out.resize(at + part.size, 0);
                if format.is_big_endian {
                    out[at..].reverse();
                }
            }
            Kind::Filler => out.push(0),
            Kind::Float => {
                #[expect(clippy::cast_possible_truncation, reason = "it rounds, as asked")]
                let number = of.number(place)? as f32;
                match format.is_big_endian {
                    true => out.extend_from_slice(&number.to_be_bytes()),
                    false => out.extend_from_slice(&number.to_le_bytes()),
                }
            }
            Kind::Double => {
                let number = of.number(place)?;
                match format.is_big_endian {
                    true => out.extend_from_slice(&number.to_be_bytes()),
                    false => out.extend_from_slice(&number.to_le_bytes()),
                }
            }
            Kind::Fixed | Kind::Terminated => {
                let string = of.string(place)?;
                let bytes = string.as_bytes();
                let size = if part.size == 0 {
                    bytes.len()
                } else {
                    part.size
                };
                let bytes = bytes.get(..size);
                // Redis counts it already.
                let bytes = bytes.ok_or_else(|| of.bad(place + 1, "string too short"))?;
                out.extend_from_slice(bytes);
                if part.kind == Kind::Terminated {
                    out.push(0);
                }
            }
            Kind::Control => {
                if !format.obey(part.letter)? {
                    return Err(of.invalid(part.letter));
                }
            }
        }
        place += usize::from(is_value);
    }
    Ok(out)
}

/// Returns the number that some bytes are.
fn number_of(bytes: &[u8], part: Part, is_big_endian: bool) -> f64 {
    let add = |all: u64, byte: &u8| all << 8 | u64::from(*byte);
    let mut number = match is_big_endian {
        true => bytes.iter().fold(0, add),
        false => bytes.iter().rev().fold(0, add),
    };
    if part.kind == Kind::Unsigned {
        return float(number);
    }
    // Of more than 8 bytes, as machines of Redis shift.
    let shift = u32::try_from(part.size * 8).unwrap_or(0).wrapping_sub(1);
    let mask = u64::MAX.wrapping_shl(shift);
    if number & mask != 0 {
        number |= mask;
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of Lua are floats: Redis loses the same bits"
    )]
    let number = number.cast_signed() as f64;
    number
}

fn unpack(of: &Arguments<'_>) -> Result<Vec<Value>, Problem> {
    let (text, data) = (of.string(1)?, of.string(2)?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let start = match of.get(3) {
        None | Some(Value::Nil) => 1,
        Some(_) => integer(of.number(3)?),
    };
    let Some(start) = start.checked_sub(1) else {
        return Err(of.bad(3, "offset must be 1 or greater"));
    };
    let mut at = usize::try_from(start).unwrap_or(usize::MAX);
    let mut format = Format::new(&text);
    let mut values = Vec::new();
    while let Some(part) = format.part(at)? {
        at = at.wrapping_add(part.padding);
        let (bytes, end) = taken(of, &data, at, part.size)?;
        if values.len() >= VALUES_MAX {
            return Err("stack overflow (too many results)".to_owned().into());
        }
        at = end;
        match part.kind {
            Kind::Unsigned | Kind::Signed => {
                values.push(Value::Number(number_of(bytes, part, format.is_big_endian)));
            }
            Kind::Filler => {}
            Kind::Float | Kind::Double => values.push(real(bytes, format.is_big_endian)),
            Kind::Fixed if part.size > 0 => {
                values.push(Value::String(of.lua.create_string(bytes)?));
            }
            Kind::Fixed => {
                let size = values.pop().map(|value| of.lua.coerce_number(value));
                let Some(size) = size.transpose()?.flatten() else {
                    let text = "format 'c0' needs a previous size";
                    return Err(text.to_owned().into());
                };
                let size = usize::try_from(integer(size)).unwrap_or(usize::MAX);
                let (bytes, end) = taken(of, &data, at, size)?;
                values.push(Value::String(of.lua.create_string(bytes)?));
                at = end;
            }
            Kind::Terminated => {
                let rest = &data[at..];
                let Some(length) = rest.iter().position(|byte| *byte == 0) else {
                    return Err("unfinished string in data".to_owned().into());
                };
                values.push(Value::String(of.lua.create_string(&rest[..length])?));
                at += length + 1;
            }
            Kind::Control => {
                if !format.obey(part.letter)? {
                    return Err(of.invalid(part.letter));
                }
            }
        }
    }
    values.push(Value::Number(float(at as u64 + 1)));
    Ok(values)
}

/// Returns `size` bytes at `at`, and where they end.
fn taken<'a>(
    of: &Arguments<'_>,
    data: &'a [u8],
    at: usize,
    size: usize,
) -> Result<(&'a [u8], usize), Problem> {
    let end = at.checked_add(size);
    let found = end.and_then(|end| Some((data.get(at..end)?, end)));
    found.ok_or_else(|| of.bad(2, "data string too short"))
}

fn real(bytes: &[u8], is_big_endian: bool) -> Value {
    let mut bytes = bytes.to_vec();
    if is_big_endian {
        bytes.reverse();
    }
    Value::Number(match (bytes[..].try_into(), bytes[..].try_into()) {
        (Ok(single), _) => f64::from(f32::from_le_bytes(single)),
        (_, Ok(double)) => f64::from_le_bytes(double),
        _ => f64::NAN,
    })
}

fn size(of: &Arguments<'_>) -> Result<usize, Problem> {
    let text = of.string(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(&text);
    let mut at: usize = 0;
    while let Some(part) = format.part(at)? {
        match part.kind {
            Kind::Terminated => return Err(of.bad(1, "option 's' has no fixed size")),
            Kind::Fixed if part.size == 0 => {
                return Err(of.bad(1, "option 'c0' has no fixed size"));
            }
            // Letters without a meaning have no size.
            Kind::Control
                if !part.letter.is_ascii_alphanumeric() && !format.obey(part.letter)? =>
            {
                return Err(of.invalid(part.letter));
            }
            _ => {}
        }
        at = at.wrapping_add(part.padding).wrapping_add(part.size);
    }
    Ok(at)
}
