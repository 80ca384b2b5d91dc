//! An open file of a faulty directory.

use std::io;

use pando_sync::Arc;
use pando_sync::time::Duration;

use super::directory::Directory;
use super::plan::{Fault, Operation};
use super::state::{DirectoryState, io_error};
use crate::device::{File, OpenOptions};
use crate::error::{Error, Result};
use crate::read_context::ReadContext;

/// An open file of a faulty directory.
#[derive(Debug, Clone)]
pub struct FaultyFile {
    handle: Arc<Handle>,
}

/// One opening, which the last clone closes.
#[derive(Debug)]
struct Handle {
    directory: Directory,
    id: u64,
    name: String,
    writable: bool,
    /// 1, or the device's alignment of direct files.
    alignment: usize,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.directory.lock().close(self.id);
    }
}

impl FaultyFile {
    pub(super) fn new(directory: Directory, id: u64, name: &str, options: OpenOptions) -> Self {
        let alignment = directory.lock().direct_alignment;
        Self {
            handle: Arc::new(Handle {
                directory,
                id,
                name: name.to_owned(),
                writable: options.write,
                alignment: if options.direct { alignment } else { 1 },
            }),
        }
    }

    fn operate<T>(
        &self,
        operation: Operation,
        perform: impl FnOnce(&mut DirectoryState, Option<Fault>) -> Result<T>,
    ) -> Result<T> {
        let handle = &*self.handle;
        if operation != Operation::Read && operation != Operation::Sync && !handle.writable {
            return Err(Error::from_kind(
                operation.verb(),
                &handle.name,
                io::ErrorKind::PermissionDenied,
            ));
        }
        handle.directory.operate(operation, &handle.name, perform)
    }

    fn check_aligned(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let alignment = self.handle.alignment;
        if bytes.as_ptr().addr().is_multiple_of(alignment)
            && bytes.len().is_multiple_of(alignment)
            && offset.is_multiple_of(alignment as u64)
        {
            return Ok(());
        }
        Err(Error::Unaligned {
            name: self.handle.name.clone(),
            offset,
            len: bytes.len(),
            alignment,
        })
    }

    fn end(&self, operation: Operation, offset: u64, len: u64) -> Result<u64> {
        offset
            .checked_add(len)
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or_else(|| {
                let kind = io::ErrorKind::FileTooLarge;
                Error::from_kind(operation.verb(), &self.handle.name, kind)
            })
    }

    fn write(&self, mut bytes: Vec<u8>, offset: u64) -> Result<()> {
        let id = self.handle.id;
        self.operate(Operation::Write, |state, fault| {
            let mut offset = offset;
            let mut result = Ok(());
            match fault {
                Some(Fault::Lost) => return state.end_write(),
                Some(Fault::Misdirected(to)) => offset = to,
                Some(Fault::Short(done)) => {
                    bytes.truncate(done);
                    result = Err(io_error(Operation::Write, &self.handle.name));
                }
                _ => {}
            }
            let end = self.end(Operation::Write, offset, bytes.len() as u64)?;
            let len = state.image(id).len();
            if end > len && !bytes.is_empty() {
                state.reserve(Operation::Write, id, end)?;
            }
            state.image(id).write(offset, bytes);
            state.end_write()?;
            result
        })
    }
}

impl File for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.check_aligned(buffer, offset)?;
        self.operate(Operation::Read, |state, fault| {
            let mut from = offset;
            let mut limit = buffer.len();
            match fault {
                Some(Fault::Lost) => return Ok(()),
                Some(Fault::Misdirected(to)) => from = to,
                Some(Fault::Short(got)) => limit = limit.min(got),
                _ => {}
            }
            let seen = state.image(self.handle.id).seen();
            let start = usize::try_from(from).map_or(seen.len(), |from| from.min(seen.len()));
            let got = limit.min(seen.len() - start);
            buffer[..got].copy_from_slice(&seen[start..start + got]);
            if got == buffer.len() {
                return Ok(());
            }
            Err(Error::ShortRead {
                name: self.handle.name.clone(),
                offset,
                wanted: buffer.len(),
                got,
            })
        })
    }

    /// Checks that the context is clean, and leaves notes in it.
    fn read_at_with(
        &self,
        buffer: &mut [u8],
        offset: u64,
        context: &mut ReadContext,
    ) -> Result<()> {
        let mut state = self.handle.directory.lock();
        state.contexts.seen += 1;
        if !context.is_clean() {
            state.contexts.unclean += 1;
        }
        drop(state);
        context.requests += 1;
        context.elapsed = Some(Duration::from_nanos(offset));
        context.remark = Some("a faulty device");
        self.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check_aligned(bytes, offset)?;
        self.write(bytes.to_vec(), offset)
    }

    fn write_vectored_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        let mut position = offset;
        for part in parts {
            self.check_aligned(part, position)?;
            position += part.len() as u64;
        }
        self.write(parts.concat(), offset)
    }

    fn sync(&self) -> Result<()> {
        let id = self.handle.id;
        let result = self.operate(Operation::Sync, |state, fault| {
            if fault != Some(Fault::Lost) {
                state.image(id).sync();
            }
            Ok(())
        });
        if matches!(result, Err(Error::Io { .. } | Error::Full { .. })) {
            self.handle.directory.lock().fail_sync(id);
        }
        result
    }

    fn len(&self) -> Result<u64> {
        let mut state = self.handle.directory.lock();
        state.check_alive()?;
        Ok(state.image(self.handle.id).len())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let id = self.handle.id;
        let len = self.end(Operation::SetLen, 0, len)?;
        self.operate(Operation::SetLen, |state, fault| {
            if fault != Some(Fault::Lost) {
                state.reserve(Operation::SetLen, id, len)?;
                state.image(id).set_len(len);
            }
            Ok(())
        })
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let id = self.handle.id;
        let end = self.end(Operation::Allocate, offset, len)?;
        self.operate(Operation::Allocate, |state, fault| {
            if fault != Some(Fault::Lost) && len > 0 && end > state.image(id).len() {
                state.reserve(Operation::Allocate, id, end)?;
                state.image(id).extend(end);
            }
            Ok(())
        })
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let end = self.end(Operation::Punch, offset, len)?;
        self.operate(Operation::Punch, |state, fault| {
            if fault != Some(Fault::Lost) {
                state.image(self.handle.id).punch(offset..end);
            }
            Ok(())
        })
    }

    fn alignment(&self) -> usize {
        self.handle.alignment
    }

    fn is_direct(&self) -> bool {
        self.handle.alignment > 1
    }
}
