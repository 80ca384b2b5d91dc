//! MessagePack as values of Lua.

use mlua::{Lua, Value};

use super::guard::Guard;

/// What is wrong with the bytes.
pub(super) enum Wrong {
    /// The text of the error.
    Text(&'static str),
    /// That of one that does not say where it is.
    Nowhere(&'static str),
    Lua(mlua::Error),
}

impl From<mlua::Error> for Wrong {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

const MISSING: Wrong = Wrong::Text("Missing bytes in input.");
const BAD: Wrong = Wrong::Text("Bad data format in input.");

/// Bytes that are unpacked.
pub(super) struct Input<'a> {
    lua: &'a Lua,
    guard: &'a Guard,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    pub(super) fn new(lua: &'a Lua, guard: &'a Guard, bytes: &'a [u8], at: usize) -> Self {
        Self {
            lua,
            guard,
            bytes,
            at,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(super) fn offset(&self) -> usize {
        self.at
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Wrong> {
        let end = self.at.checked_add(count).ok_or(MISSING)?;
        let taken = self.bytes.get(self.at..end).ok_or(MISSING)?;
        self.at = end;
        Ok(taken)
    }

    /// Takes an unsigned number of `count` bytes, 8 at most.
    fn unsigned(&mut self, count: usize) -> Result<u64, Wrong> {
        let bytes = self.take(count)?;
        Ok(bytes
            .iter()
            .fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    fn length(&mut self, count: usize) -> Result<usize, Wrong> {
        usize::try_from(self.unsigned(count)?).map_err(|_| MISSING)
    }

    /// Takes a signed number of `count` bytes.
    fn signed(&mut self, count: usize) -> Result<Value, Wrong> {
        let unused = 64 - 8 * count;
        let number = (self.unsigned(count)? << unused).cast_signed() >> unused;
        #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are floats")]
        let number = number as f64;
        Ok(Value::Number(number))
    }

    fn string(&mut self, length: usize) -> Result<Value, Wrong> {
        let bytes = self.take(length)?;
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    /// Takes one value.
    pub(super) fn value(&mut self) -> Result<Value, Wrong> {
        let code = self.take(1)?[0];
        let low = usize::from(code);
        Ok(match code {
            0..=0x7f => Value::Number(f64::from(code)),
            0x80..=0x8f => self.map(low & 15)?,
            0x90..=0x9f => self.array(low & 15)?,
            0xa0..=0xbf => self.string(low & 31)?,
            0xc0 => Value::Nil,
            0xc2 => Value::Boolean(false),
            0xc3 => Value::Boolean(true),
            0xd9 => {
                let length = self.length(1)?;
                self.string(length)?
            }
            0xda => {
                let length = self.length(2)?;
                self.string(length)?
            }
            0xdb => {
                let length = self.length(4)?;
                self.string(length)?
            }
            0xca => {
                let bytes = self.take(4)?.try_into().map_err(|_| MISSING)?;
                Value::Number(f64::from(f32::from_be_bytes(bytes)))
            }
            0xcb => {
                let bytes = self.take(8)?.try_into().map_err(|_| MISSING)?;
                Value::Number(f64::from_be_bytes(bytes))
            }
            0xcc..=0xcf => {
                // From 2^63 on they are negative, as in Redis.
                let number = self.unsigned(1 << (code - 0xcc))?.cast_signed();
                #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are floats")]
                let number = number as f64;
                Value::Number(number)
            }
            0xd0..=0xd3 => self.signed(1 << (code - 0xd0))?,
            0xdc | 0xdd => {
                let length = self.length(if code == 0xdc { 2 } else { 4 })?;
                self.array(length)?
            }
            0xde | 0xdf => {
                let length = self.length(if code == 0xde { 2 } else { 4 })?;
                self.map(length)?
            }
            0xe0..=0xff => Value::Number(f64::from(code.cast_signed())),
            _ => return Err(BAD),
        })
    }

    fn check(&self) -> Result<(), Wrong> {
        match self.guard.is_deep() {
            true => Err(Wrong::Text("too many nested values in input.")),
            false => Ok(()),
        }
    }

    fn array(&mut self, length: usize) -> Result<Value, Wrong> {
        self.check()?;
        let table = self.lua.create_table()?;
        for place in 1..=length {
            let value = self.value()?;
            table.raw_set(place, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, length: usize) -> Result<Value, Wrong> {
        self.check()?;
        let table = self.lua.create_table()?;
        for _ in 0..length {
            let (key, value) = (self.value()?, self.value()?);
            match key {
                Value::Nil => return Err(Wrong::Nowhere("ERR table index is nil")),
                Value::Number(number) if number.is_nan() => {
                    return Err(Wrong::Nowhere("ERR table index is NaN"));
                }
                _ => {}
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}
