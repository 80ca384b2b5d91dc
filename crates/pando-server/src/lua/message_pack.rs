//! The library `cmsgpack`: values of Lua as MessagePack, in the bytes of Redis.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};

use super::guard::Guard;
use super::json_encode::{name_of, place_of};
use super::message_unpack::{Input, Wrong};
use super::native::{Native, ended, failed, number, refused, returned, text};

/// Nesting of tables from which on they are packed as nil.
const DEPTH_MAX: usize = 16;
/// Number of values that one call returns.
const VALUES_MAX: usize = 7000;

/// Returns a table with the functions.
pub(super) fn table(lua: &Lua, guard: &Rc<Guard>, out_max: usize) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let of_pack = guard.clone();
    let pack = move |lua: &Lua, arguments: MultiValue| {
        if arguments.is_empty() {
            let text = "bad argument #0 to 'pack' (MessagePack pack needs input.)";
            return failed(lua, text);
        }
        let mut packer = Packer {
            out: Vec::new(),
            out_max,
        };
        for value in &arguments {
            packer.value(value, 0)?;
        }
        if of_pack.look_behind(packer.out.len()) {
            return ended(lua);
        }
        returned(lua, lua.create_string(&packer.out)?)
    };
    table.raw_set("pack", lua.create_function(pack)?)?;
    for (name, usual) in [
        ("unpack", None),
        ("unpack_one", Some(1)),
        ("unpack_limit", Some(0)),
    ] {
        let guard = guard.clone();
        let unpack =
            move |lua: &Lua, arguments: MultiValue| unpack(lua, &guard, (name, usual), &arguments);
        table.raw_set(name, lua.create_function(unpack)?)?;
    }
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    Ok(table)
}

struct Packer {
    out: Vec<u8>,
    out_max: usize,
}

impl Packer {
    fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        if self.out.len() > self.out_max {
            return Err(mlua::Error::MemoryError("not enough memory".to_owned()));
        }
        match value {
            Value::String(text) => {
                let bytes = text.as_bytes();
                self.header(
                    bytes.len(),
                    (0xa0, 32),
                    [Some(0xd9), Some(0xda), Some(0xdb)],
                );
                self.out.extend_from_slice(&bytes);
            }
            Value::Boolean(yes) => self.out.push(if *yes { 0xc3 } else { 0xc2 }),
            Value::Integer(number) => self.integer(*number),
            Value::Number(number) => self.number(*number),
            Value::Table(_) if depth == DEPTH_MAX => self.out.push(0xc0),
            Value::Table(table) => self.table(table, depth + 1)?,
            _ => self.out.push(0xc0),
        }
        Ok(())
    }

    /// Writes a length: into one byte if it is below that of `short`, else behind one of `codes`,
    /// with 8, 16 or 32 bits.
    fn header(&mut self, length: usize, short: (u8, usize), codes: [Option<u8>; 3]) {
        let as_byte = u8::try_from(length);
        match (as_byte, u16::try_from(length), codes) {
            (Ok(byte), _, _) if length < short.1 => self.out.push(short.0 | byte),
            (Ok(byte), _, [Some(code), ..]) => self.out.extend_from_slice(&[code, byte]),
            (_, Ok(word), [_, Some(code), _]) => {
                self.out.push(code);
                self.out.extend_from_slice(&word.to_be_bytes());
            }
            (_, _, [_, _, code]) => {
                self.out.push(code.unwrap_or(0xdb));
                let length = u32::try_from(length).unwrap_or(u32::MAX);
                self.out.extend_from_slice(&length.to_be_bytes());
            }
        }
    }

    fn number(&mut self, number: f64) {
        let is_inside =
            (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
        if is_inside && number.fract() == 0.0 {
            #[expect(clippy::cast_possible_truncation, reason = "it is whole, and inside")]
            return self.integer(number as i64);
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is looked at whether it fits"
        )]
        let single = number as f32;
        if f64::from(single) == number {
            self.out.push(0xca);
            self.out.extend_from_slice(&single.to_be_bytes());
        } else {
            self.out.push(0xcb);
            self.out.extend_from_slice(&number.to_be_bytes());
        }
    }

    fn integer(&mut self, number: i64) {
        let bytes = number.to_be_bytes();
        let (code, count) = match number {
            -32..=127 => return self.out.push(bytes[7]),
            128..=0xff => (0xcc, 1),
            0x100..=0xffff => (0xcd, 2),
            0x1_0000..=0xffff_ffff => (0xce, 4),
            0x1_0000_0000.. => (0xcf, 8),
            -0x80..=-33 => (0xd0, 1),
            -0x8000..=-0x81 => (0xd1, 2),
            -0x8000_0000..=-0x8001 => (0xd2, 4),
            _ => (0xd3, 8),
        };
        self.out.push(code);
        self.out.extend_from_slice(&bytes[8 - count..]);
    }

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        // Two passes: Lua has not enough references for all pairs at once.
        let (mut count, mut last) = (0, Some(0));
        for pair in table.pairs::<Value, Value>() {
            count += 1;
            let place = place_of(&pair?.0);
            last = last.and_then(|last: usize| place.map(|place| last.max(place)));
        }
        if last == Some(count) {
            self.header(count, (0x90, 16), [None, Some(0xdc), Some(0xdd)]);
            for place in 1..=count {
                self.value(&table.raw_get(place)?, depth)?;
            }
            return Ok(());
        }
        self.header(count, (0x80, 16), [None, Some(0xde), Some(0xdf)]);
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, depth)?;
            self.value(&value, depth)?;
        }
        Ok(())
    }
}

/// Returns how many values are asked for, from which offset on; or the text of an error. Of
/// `unpack_limit` the limit has to be there; the offset need not.
fn bounds(
    lua: &Lua,
    (name, usual): (&str, Option<i64>),
    arguments: &MultiValue,
) -> mlua::Result<Result<(i64, i64), String>> {
    let (mut limit, mut offset) = (usual.unwrap_or(0), 0);
    let places = match name {
        "unpack_one" => 1..2,
        "unpack_limit" => 1..3,
        _ => 0..0,
    };
    for place in places.clone() {
        let is_offset = place + 1 == places.end;
        let value = arguments.get(place);
        if is_offset && value.is_none_or(Value::is_nil) {
            continue;
        }
        let Some(found) = number(lua, value)? else {
            let found = value.map_or("no value", name_of);
            let place = place + 1;
            let text = format!("bad argument #{place} to '{name}' (number expected, got {found})");
            return Ok(Err(text));
        };
        #[expect(clippy::cast_possible_truncation, reason = "saturates, as offsets may")]
        let found = found as i64;
        *(if is_offset { &mut offset } else { &mut limit }) = found;
    }
    Ok(Ok((limit, offset)))
}

/// Unpacks all values, or as many as asked for, with the offset behind them in front.
fn unpack(
    lua: &Lua,
    guard: &Guard,
    (name, usual): (&str, Option<i64>),
    arguments: &MultiValue,
) -> Native {
    let value = arguments.front().unwrap_or(&Value::Nil);
    let Some(text) = text(lua, value)? else {
        let found = if arguments.is_empty() {
            "no value"
        } else {
            value.type_name()
        };
        let text = format!("bad argument #1 to '{name}' (string expected, got {found})");
        return failed(lua, &text);
    };
    let bytes = text.as_bytes();
    let (limit, offset) = match bounds(lua, (name, usual), arguments)? {
        Ok(bounds) => bounds,
        Err(text) => return failed(lua, &text),
    };
    let (Ok(most), Ok(start)) = (usize::try_from(limit), usize::try_from(offset)) else {
        // What Redis calls the limit is the length.
        let length = bytes.len();
        let text =
            format!("Invalid request to unpack with offset of {offset} and limit of {length}.");
        return failed(lua, &text);
    };
    if start > bytes.len() {
        let length = bytes.len();
        let text = format!("Start offset {start} greater than input length {length}.");
        return failed(lua, &text);
    }
    let decodes_all = usual.is_none() || most == 0 && start == 0;
    let most = if decodes_all { usize::MAX } else { most };
    let mut input = Input::new(lua, guard, &bytes, start);
    let mut values = vec![Value::Boolean(true)];
    let mut count = 0;
    while !input.is_empty() && count < most {
        if count == VALUES_MAX {
            let text = "too many return values at once; use unpack_one or unpack_limit instead.";
            return failed(lua, text);
        }
        match input.value() {
            Ok(value) => values.push(value),
            Err(Wrong::Text(text)) => return failed(lua, text),
            Err(Wrong::Nowhere(text)) => return refused(lua, text),
            Err(Wrong::Lua(error)) => return Err(error),
        }
        count += 1;
    }
    if guard.look_behind(bytes.len()) {
        return ended(lua);
    }
    if !decodes_all {
        let offset = match input.is_empty() {
            true => -1,
            false => i64::try_from(input.offset()).unwrap_or(i64::MAX),
        };
        values.insert(1, Value::Integer(offset));
    }
    Ok(values.into_iter().collect())
}
