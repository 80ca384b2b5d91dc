//! A channel whose reads complete when they are submitted, without reading anything.

use std::collections::VecDeque;
use std::task::Waker;

use pando_device::{AnyFile, Channel, Completion, IoBuf, REAP_MAX};
use pando_sync::time::Duration;

/// Reads that touch no byte.
#[derive(Debug)]
pub(crate) struct NullChannel {
    done: VecDeque<Completion>,
    depth: usize,
}

impl NullChannel {
    /// Returns a channel that completes reads at once, and holds at most `depth` completions.
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            done: VecDeque::with_capacity(depth),
            depth,
        }
    }
}

impl Channel for NullChannel {
    type File = AnyFile;

    fn submit_read(
        &mut self,
        _file: &AnyFile,
        _offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        if self.done.len() >= self.depth {
            return Err(buffer);
        }
        self.done.push_back(Completion {
            tag,
            buffer,
            result: Ok(()),
        });
        Ok(())
    }

    fn submit_write(
        &mut self,
        file: &AnyFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        self.submit_read(file, offset, buffer, tag)
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize {
        let count = self.done.len().min(REAP_MAX);
        completions.extend(self.done.drain(..count));
        count
    }

    fn wait(&mut self, _timeout: Option<Duration>) {}

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn waker(&mut self) -> Waker {
        // Nothing ever waits.
        Waker::noop().clone()
    }
}
