//! Reading the text of a dump, field by field and piece by piece: a value may be longer than
//! memory.

use std::io::{ErrorKind, Read};

use pando_device::Error as DeviceError;
use pando_format::checksum::crc32c_append;

use crate::dump::text::{FieldEnd, Unescape};
use crate::error::{Error, Result};

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Bytes of a field that are handed on at once, at least.
const PIECE_BYTES: usize = 64 << 10;

/// The lines of a dump.
pub(super) struct Lines<R> {
    input: R,
    read: Vec<u8>,
    /// What of `read` is there and was not taken yet.
    left: std::ops::Range<usize>,
    /// Number of the line of the last field that was taken, from 1.
    line: u64,
    /// That field was the last one of its line.
    is_line_taken: bool,
    /// Checksum of what was taken since it was begun.
    sum: u32,
    /// Bytes of a field on their way; empty between fields.
    piece: Vec<u8>,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            read: vec![0; READ_BYTES],
            left: 0..0,
            line: 1,
            is_line_taken: false,
            sum: 0,
            piece: Vec::new(),
        }
    }

    /// Makes the error of the line of the last field.
    pub(super) fn wrong(&self, what: impl Into<String>) -> Error {
        Error::InvalidDump {
            line: self.line,
            what: what.into(),
        }
    }

    /// Checksum of all that was taken since [`Lines::begin_checksum`].
    pub(super) fn checksum(&self) -> u32 {
        self.sum
    }

    /// Begins a checksum with what is taken next.
    pub(super) fn begin_checksum(&mut self) {
        self.sum = 0;
    }

    /// True if there is nothing more.
    pub(super) fn is_at_end(&mut self) -> Result<bool> {
        self.fill()?;
        Ok(self.left.is_empty())
    }

    /// Takes a field of at most `most` bytes; `advice` is for one that is longer.
    pub(super) fn field(
        &mut self,
        most: usize,
        advice: &str,
        out: &mut Vec<u8>,
    ) -> Result<FieldEnd> {
        out.clear();
        let line = self.line + u64::from(self.is_line_taken);
        self.pieces(&mut |piece| {
            if out.len() + piece.len() > most {
                let what = format!("a field has more than {most} bytes{advice}");
                return Err(Error::InvalidDump { line, what });
            }
            out.extend_from_slice(piece);
            Ok(())
        })
    }

    /// Takes a field, and hands its bytes to `take` piece by piece.
    pub(super) fn pieces(&mut self, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<FieldEnd> {
        self.line += u64::from(self.is_line_taken);
        self.is_line_taken = false;
        let mut unescape = Unescape::default();
        let mut piece = std::mem::take(&mut self.piece);
        loop {
            self.fill()?;
            if self.left.is_empty() {
                return Err(self.wrong("it ends here, in the middle: the rest is missing"));
            }
            let end = self.left.end.min(self.left.start + PIECE_BYTES);
            let text = &self.read[self.left.start..end];
            let taken = unescape.take(text, &mut piece);
            let (taken, end) = taken.map_err(|what| self.wrong(what))?;
            self.sum = crc32c_append(self.sum, &text[..taken]);
            self.left.start += taken;
            take(&piece)?;
            piece.clear();
            if let Some(end) = end {
                self.piece = piece;
                self.is_line_taken = end == FieldEnd::Line;
                return Ok(end);
            }
        }
    }

    /// Reads on if all that was read is taken.
    fn fill(&mut self) -> Result<()> {
        while self.left.is_empty() {
            match self.input.read(&mut self.read) {
                Ok(0) => return Ok(()),
                Ok(bytes) => self.left = 0..bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let error = DeviceError::from_io("read", "dump", error);
                    return Err(Error::io("reading a dump")(error));
                }
            }
        }
        Ok(())
    }
}
