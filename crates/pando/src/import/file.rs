//! An RDB file: a head with its version, what the keys of each database have, functions, and a sum.

use std::io::Read;

use super::reader::{Fault, Reader};
use super::values;
use pando_server::rdb;

/// Bytes of a value that are kept at most: no server takes a longer argument.
const VALUE_BYTES_MAX: u64 = 512 << 20;

/// What precedes anything but a key.
mod mark {
    pub(super) const SLOT: u8 = 244;
    pub(super) const LIBRARY: u8 = 245;
    pub(super) const OF_MODULE: u8 = 247;
    pub(super) const IDLE_TIME: u8 = 248;
    pub(super) const FREQUENCY: u8 = 249;
    pub(super) const AUXILIARY: u8 = 250;
    pub(super) const SIZES: u8 = 251;
    pub(super) const DEADLINE: u8 = 252;
    pub(super) const DEADLINE_IN_SECONDS: u8 = 253;
    pub(super) const DATABASE: u8 = 254;
    pub(super) const END: u8 = 255;
}

/// The kind of a value that belongs to a module.
pub(super) const OF_MODULE: u8 = 7;

/// What a file has.
#[derive(Debug)]
pub(super) enum Record {
    Key(Key),
    /// The code of a library of functions.
    Library(Vec<u8>),
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) database: u64,
    pub(super) name: Vec<u8>,
    /// In milliseconds since 1970.
    pub(super) deadline: Option<u64>,
    /// The byte of its kind, and its value; `None` if that is longer than any argument.
    pub(super) value: Option<Vec<u8>>,
    /// Bytes of these.
    pub(super) bytes: u64,
    pub(super) kind: u8,
}

/// A file that is being read.
pub(super) struct RdbFile<R> {
    reader: Reader<R>,
    pub(super) version: u16,
    database: u64,
}

impl<R: Read> RdbFile<R> {
    /// Reads the head.
    pub(super) fn open(input: R) -> Result<Self, Fault> {
        let mut reader = Reader::new(input, VALUE_BYTES_MAX);
        let head: [u8; 9] = match reader.array() {
            Err(Fault::Content(_)) => [0; 9],
            head => head?,
        };
        let version = head.strip_prefix(b"REDIS");
        let version = version.and_then(|digits| std::str::from_utf8(digits).ok());
        let version = version.and_then(|digits| digits.parse().ok());
        let Some(version) = version else {
            let text = "it does not begin with REDIS and a version, as an RDB file does";
            return Err(Fault::Content(text.to_owned()));
        };
        if version > rdb::VERSION_MAX {
            return Err(Fault::Content(format!(
                "it is of version {version} of the format, and {} is the newest one that is known, \
                 that of Redis 8.0",
                rdb::VERSION_MAX
            )));
        }
        Ok(Self {
            reader,
            version,
            database: 0,
        })
    }

    /// Number of bytes that were read.
    pub(super) fn place(&self) -> u64 {
        self.reader.place
    }

    /// Returns the next key or library; `None` at the end, if the sum is right.
    pub(super) fn next(&mut self) -> Result<Option<Record>, Fault> {
        let reader = &mut self.reader;
        let mut deadline = None;
        loop {
            let kind = reader.byte()?;
            match kind {
                mark::DEADLINE => deadline = Some(u64::from_le_bytes(reader.array()?)),
                mark::DEADLINE_IN_SECONDS => {
                    let seconds = u32::from_le_bytes(reader.array()?);
                    deadline = Some(u64::from(seconds) * 1000);
                }
                mark::DATABASE => self.database = reader.length()?,
                mark::SIZES => {
                    reader.length()?;
                    reader.length()?;
                }
                mark::SLOT => {
                    for _ in 0..3 {
                        reader.length()?;
                    }
                }
                mark::AUXILIARY => {
                    reader.pass_string()?;
                    reader.pass_string()?;
                }
                mark::IDLE_TIME => {
                    reader.length()?;
                }
                mark::FREQUENCY => {
                    reader.byte()?;
                }
                mark::OF_MODULE => {
                    // Its id; and when it is loaded, as a kind and a number.
                    for _ in 0..3 {
                        reader.length()?;
                    }
                    values::pass_module(reader)?;
                }
                mark::LIBRARY => return Ok(Some(Record::Library(reader.string()?))),
                mark::END => {
                    self.end()?;
                    return Ok(None);
                }
                kind => return Ok(Some(Record::Key(self.key(kind, deadline)?))),
            }
        }
    }

    fn key(&mut self, kind: u8, deadline: Option<u64>) -> Result<Key, Fault> {
        let reader = &mut self.reader;
        let name = reader.string()?;
        reader.keep();
        values::pass(reader, kind)?;
        let (value, bytes) = reader.kept();
        let value = value.map(|mut value| {
            value.insert(0, kind);
            value
        });
        Ok(Key {
            database: self.database,
            name,
            deadline,
            value,
            bytes: bytes + 1,
            kind,
        })
    }

    /// Compares the sum, unless the file has none.
    fn end(&mut self) -> Result<(), Fault> {
        /// The first version with a sum behind it.
        const SUMMED: u16 = 5;
        if self.version < SUMMED {
            return Ok(());
        }
        let sum = self.reader.sum;
        let found = u64::from_le_bytes(self.reader.array()?);
        match found == 0 || found == sum {
            true => Ok(()),
            false => Err(Fault::Content(format!(
                "its sum is {found:016x}, and that of its bytes {sum:016x}: it is damaged"
            ))),
        }
    }
}
