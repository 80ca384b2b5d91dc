//! Buffers and decoder of a thread that reads pages: made once, reset before each read, never
//! rebuilt (decision 014).
//!
//! A thread that reads or publishes pages takes its context, and puts it back afterwards. If it
//! reads again meanwhile (in a waker that a publication calls), it finds no context and makes one,
//! which the first one replaces later. Buffers keep old bytes: a read fills every byte that it is
//! asked for, and nobody reads past that.

use std::cell::Cell;

use pando_device::{AnyFile, File, IoBuf, ReadContext as DeviceContext};
use pando_format::PageDecoder;
use pando_stats::{Statistics, Ticker};

/// A thread's buffer and decompressor, and what the device notes about a read.
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
    /// Calls `act` with the context of this thread, or with a new one if the thread, which ends,
    /// has destroyed it.
    pub(crate) fn of_thread<R>(
        statistics: &Statistics,
        act: impl FnOnce(&mut ReadContext) -> R,
    ) -> R {
        let kept = CONTEXT.try_with(Cell::take).ok().flatten();
        let mut context = kept.unwrap_or_else(|| {
            statistics.tick(Ticker::ReadContextsMade, 1);
            Box::default()
        });
        let result = act(&mut context);
        let _ = CONTEXT.try_with(|kept| kept.set(Some(context)));
        result
    }

    /// Reads `bytes` bytes at `offset`. Blocks. Returns them together with the decoder for them.
    ///
    /// # Errors
    /// The error of the device, with the context that it took notes in.
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

    /// The decoder, for bytes that were read through a channel.
    pub(crate) fn decoder(&mut self) -> &mut PageDecoder {
        &mut self.decoder
    }
}
