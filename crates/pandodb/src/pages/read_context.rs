//! What a thread needs to read pages: made once, reset before each read, never
//! rebuilt (decision 014).
//!
//! A thread that reads or publishes pages takes its context, and puts it back behind the read. One
//! that reads once more meanwhile (from a waker that a publication calls) finds none and makes one,
//! which replaces the first. Buffers keep what they hold: a read fills all that it is asked for,
//! and nothing behind that is looked at.

use std::cell::Cell;

use pando_device::{AnyFile, File, IoBuf, ReadContext as DeviceContext};
use pando_format::PageDecoder;
use pando_stats::{Statistics, Ticker};

/// Buffers, decompressor state, and what the device may look at.
#[derive(Debug, Default)]
pub(crate) struct ReadContext {
    device: DeviceContext,
    buffer: IoBuf,
    decoder: PageDecoder,
}

thread_local! {
    static CONTEXT: Cell<Option<Box<ReadContext>>> = const { Cell::new(None) };
}

impl ReadContext {
    /// Calls `act` with the context of this thread.
    pub(crate) fn of_thread<R>(
        statistics: &Statistics,
        act: impl FnOnce(&mut ReadContext) -> R,
    ) -> R {
        let mut context = CONTEXT.take().unwrap_or_else(|| {
            statistics.tick(Ticker::ReadContextsMade, 1);
            Box::default()
        });
        let result = act(&mut context);
        CONTEXT.set(Some(context));
        result
    }

    /// Reads `bytes` bytes from `offset` on. Blocks. Returns them, with the decoder for them.
    ///
    /// # Errors
    /// The device's, with what it noted.
    pub(crate) fn read(
        &mut self,
        file: &AnyFile,
        offset: u64,
        bytes: usize,
    ) -> Result<(&[u8], &mut PageDecoder), (pando_device::Error, DeviceContext)> {
        self.device.reset();
        if self.buffer.capacity() < bytes {
            self.buffer = IoBuf::new(bytes);
        }
        self.buffer.set_len(bytes);
        match file.read_at_with(&mut self.buffer, offset, &mut self.device) {
            Ok(()) => Ok((&self.buffer, &mut self.decoder)),
            Err(error) => Err((error, self.device)),
        }
    }

    /// The decoder, for bytes that came through a channel.
    pub(crate) fn decoder(&mut self) -> &mut PageDecoder {
        &mut self.decoder
    }
}
