//! An RDB file: a head with its version, what the keys of each database have, functions, and a sum.

use std::io::Read;

use super::reader::{Fault, Reader};
use super::values::{self, Piece, Value};
use crate::failure::Failure;
use crate::rdb_mark as mark;
use pando_server::rdb;

/// Bytes of a value, or of an element of a long one, that are kept at most: no server takes an
/// argument of more than 512 MiB, and what is around a value in a payload takes a few bytes.
pub(super) const KEPT_BYTES_MAX: u64 = (512 << 20) - 64;

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
    /// Its value, of which nothing was read.
    pub(super) value: Value,
}

/// A file that is being read.
pub(super) struct RdbFile<R> {
    /// As errors name it.
    name: String,
    /// Number of its bytes, if it is known.
    length: Option<u64>,
    reader: Reader<R>,
    pub(super) version: u16,
    database: u64,
}

impl<R: Read> RdbFile<R> {
    /// Reads the head of a file of so many bytes, which errors call `name`.
    pub(super) fn open(input: R, name: String, length: Option<u64>) -> Result<Self, Failure> {
        let mut file = Self {
            name,
            length,
            reader: Reader::new(input, KEPT_BYTES_MAX),
            version: 0,
            database: 0,
        };
        match file.read_head() {
            Ok(version) => file.version = version,
            Err(fault) => return Err(file.failure(fault)),
        }
        Ok(file)
    }

    fn failure(&self, fault: Fault) -> Failure {
        match fault {
            Fault::Io(error) => Failure::io(format!("{}: {error}", self.name)),
            Fault::Content(text) => Failure::damage(format!("{}: {text}", self.name)),
        }
    }

    /// Returns the version.
    fn read_head(&mut self) -> Result<u16, Fault> {
        let reader = &mut self.reader;
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
        Ok(version)
    }

    /// Returns how much of it was read, from 0 to 1; 0 if nobody knows.
    pub(super) fn share(&self) -> f64 {
        let length = self.length.unwrap_or(u64::MAX).max(1);
        self.reader.place as f64 / length as f64
    }

    /// Returns the next key or library; `None` at the end, if the sum is right. All of the value of
    /// the key before it was read.
    pub(super) fn next(&mut self) -> Result<Option<Record>, Failure> {
        let record = self.read_next();
        record.map_err(|fault| self.failure(fault))
    }

    /// Reads the next piece of the value of the last key.
    pub(super) fn piece(&mut self, value: &mut Value) -> Result<Piece, Failure> {
        let piece = value.next(&mut self.reader);
        piece.map_err(|fault| self.failure(fault))
    }

    /// Reads what is left of the value of the last key; returns the number of its bytes.
    pub(super) fn pass(&mut self, value: &mut Value) -> Result<u64, Failure> {
        let mut bytes = 0;
        while !value.is_over() {
            bytes += self.piece(value)?.length;
        }
        Ok(bytes)
    }

    fn read_next(&mut self) -> Result<Option<Record>, Fault> {
        let reader = &mut self.reader;
        let mut deadline = None;
        loop {
            let kind = reader.byte()?;
            match kind {
                // Those before 1970 have passed, too.
                mark::DEADLINE => {
                    let ms = i64::from_le_bytes(reader.array()?);
                    deadline = Some(u64::try_from(ms).unwrap_or(0));
                }
                mark::DEADLINE_IN_SECONDS => {
                    let seconds = i32::from_le_bytes(reader.array()?);
                    deadline = Some(u64::try_from(seconds).unwrap_or(0) * 1000);
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
        Ok(Key {
            database: self.database,
            name: self.reader.string()?,
            deadline,
            value: Value::new(kind),
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
