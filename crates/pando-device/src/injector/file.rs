//! A file whose operations fail on demand.

use pando_sync::Arc;

use super::faults::{Injector, error_of, give_way};
use crate::buffer::IoBuf;
use crate::device::File;
use crate::error::{Error, Result};
use crate::faulty::plan::{Fault, Operation};

/// A file of an [`InjectorDevice`](super::InjectorDevice).
#[derive(Debug, Clone)]
pub struct InjectorFile<F> {
    pub(super) inner: F,
    pub(super) name: Arc<str>,
    pub(super) injector: Arc<Injector>,
}

impl<F: File> InjectorFile<F> {
    pub(super) fn new(inner: F, name: &str, injector: Arc<Injector>) -> Self {
        Self {
            inner,
            name: name.into(),
            injector,
        }
    }

    fn pass(&self, operation: Operation) -> Result<bool> {
        self.injector.pass(operation, &self.name)
    }

    pub(super) fn short_read(&self, offset: u64, wanted: usize, got: usize) -> Error {
        Error::ShortRead {
            name: self.name.to_string(),
            offset,
            wanted,
            got: got.min(wanted),
        }
    }

    /// Writes the first `len` bytes, or as many of them as alignment allows, and fails.
    pub(super) fn write_short(&self, bytes: &[u8], offset: u64, len: usize) -> Error {
        let len = len.min(bytes.len());
        let part = len - len % self.inner.alignment();
        match self.inner.write_at(&bytes[..part], offset) {
            Ok(()) => error_of(Fault::Io, Operation::Write, &self.name),
            Err(error) => error,
        }
    }
}

impl<F: File> File for InjectorFile<F> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        match self.injector.strike(Operation::Read, &self.name) {
            None => self.inner.read_at(buffer, offset),
            Some(Fault::Lost) => Ok(()),
            Some(Fault::Misdirected(to)) => self.inner.read_at(buffer, to),
            Some(Fault::Short(got)) => Err(self.short_read(offset, buffer.len(), got)),
            Some(Fault::Yield(times)) => {
                give_way(times);
                self.inner.read_at(buffer, offset)
            }
            Some(fault) => Err(error_of(fault, Operation::Read, &self.name)),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        match self.injector.strike(Operation::Write, &self.name) {
            None => self.inner.write_at(bytes, offset),
            Some(Fault::Lost) => Ok(()),
            Some(Fault::Misdirected(to)) => self.inner.write_at(bytes, to),
            Some(Fault::Short(done)) => Err(self.write_short(bytes, offset, done)),
            Some(Fault::Yield(times)) => {
                give_way(times);
                self.inner.write_at(bytes, offset)
            }
            Some(fault) => Err(error_of(fault, Operation::Write, &self.name)),
        }
    }

    fn write_vectored_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        match self.injector.strike(Operation::Write, &self.name) {
            None => self.inner.write_vectored_at(parts, offset),
            Some(Fault::Lost) => Ok(()),
            Some(Fault::Misdirected(to)) => self.inner.write_vectored_at(parts, to),
            Some(Fault::Short(done)) => {
                let bytes = IoBuf::copy_of(&parts.concat());
                Err(self.write_short(&bytes, offset, done))
            }
            Some(Fault::Yield(times)) => {
                give_way(times);
                self.inner.write_vectored_at(parts, offset)
            }
            Some(fault) => Err(error_of(fault, Operation::Write, &self.name)),
        }
    }

    fn sync(&self) -> Result<()> {
        match self.pass(Operation::Sync)? {
            true => self.inner.sync(),
            false => Ok(()),
        }
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        match self.pass(Operation::SetLen)? {
            true => self.inner.set_len(len),
            false => Ok(()),
        }
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        match self.pass(Operation::Allocate)? {
            true => self.inner.allocate(offset, len),
            false => Ok(()),
        }
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        match self.pass(Operation::Punch)? {
            true => self.inner.punch(offset, len),
            false => Ok(()),
        }
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
}
