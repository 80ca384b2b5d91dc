//! A file whose writes stay in memory.

use std::io;

use pando_sync::Arc;

use super::content::{Content, Found};
use crate::device::File;
use crate::error::{Error, Result};
use crate::read_context::ReadContext;

/// A file of an [`OverlayDevice`](super::OverlayDevice).
#[derive(Debug, Clone)]
pub struct OverlayFile<F> {
    pub(super) content: Arc<Content<F>>,
    /// The inner file, if it is read past the page cache.
    direct: Option<F>,
    writable: bool,
}

impl<F: File> OverlayFile<F> {
    pub(super) fn new(content: Arc<Content<F>>, direct: Option<F>, writable: bool) -> Self {
        Self {
            content,
            direct,
            writable,
        }
    }

    /// Returns the inner file, for a read whose bytes are all there.
    pub(super) fn below(&self) -> &F {
        match &self.direct {
            Some(direct) => direct,
            None => self.content.inner(),
        }
    }

    fn check_writable(&self, operation: &'static str) -> Result<()> {
        match self.writable {
            true => Ok(()),
            false => Err(Error::from_kind(
                operation,
                &self.content.name,
                io::ErrorKind::PermissionDenied,
            )),
        }
    }
}

impl<F: File> File for OverlayFile<F> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        match self.content.find(buffer, offset)? {
            Found::Below => self.below().read_at(buffer, offset),
            Found::Here(below) => self.content.read_below(buffer, offset, below),
        }
    }

    fn read_at_with(
        &self,
        buffer: &mut [u8],
        offset: u64,
        context: &mut ReadContext,
    ) -> Result<()> {
        match self.content.find(buffer, offset)? {
            Found::Below => self.below().read_at_with(buffer, offset, context),
            Found::Here(below) => self.content.read_below(buffer, offset, below),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check_writable("write")?;
        self.content.write(bytes, offset)
    }

    fn write_vectored_at(&self, parts: &[&[u8]], mut offset: u64) -> Result<()> {
        for part in parts {
            self.write_at(part, offset)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.content.len())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check_writable("set the length of")?;
        self.content.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable("allocate")?;
        self.content.allocate(offset, len)
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable("punch")?;
        self.content.punch(offset, len)
    }

    fn alignment(&self) -> usize {
        self.direct.as_ref().map_or(1, F::alignment)
    }

    fn is_direct(&self) -> bool {
        self.direct.as_ref().is_some_and(F::is_direct)
    }
}
