//! Files with a name and a length but no content: every request is done at once and touches no
//! byte. A read leaves its buffer unchanged. For measurements of the layers above.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::task::Waker;

use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::time::Duration;
use pando_sync::{Arc, Mutex};

use crate::buffer::IoBuf;
use crate::device::{
    Channel, ChannelOptions, Completion, Create, Device, File, OpenOptions, REAP_MAX,
};
use crate::error::{Error, Result};
use crate::name;

/// A directory of files without content.
#[derive(Debug, Clone, Default)]
pub struct NullDevice {
    files: Arc<Mutex<BTreeMap<String, NullFile>>>,
}

impl NullDevice {
    /// Makes an empty directory.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Device for NullDevice {
    type File = NullFile;
    type Channel = NullChannel;

    fn backend(&self) -> &'static str {
        "null"
    }

    fn open(&self, name: &str, options: OpenOptions) -> Result<NullFile> {
        name::check_open(name, options)?;
        let mut files = self.files.lock();
        match (files.get(name), options.create) {
            (Some(_), Create::New) => Err(Error::from_kind(
                "create",
                name,
                io::ErrorKind::AlreadyExists,
            )),
            (Some(file), _) => Ok(file.clone()),
            (None, Create::Never) => Err(Error::from_kind("open", name, io::ErrorKind::NotFound)),
            (None, _) => {
                let file = NullFile {
                    name: name.into(),
                    len: Arc::new(AtomicU64::new(0)),
                };
                files.insert(name.to_owned(), file.clone());
                Ok(file)
            }
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        name::check("remove", name)?;
        match self.files.lock().remove(name) {
            Some(_) => Ok(()),
            None => Err(Error::from_kind("remove", name, io::ErrorKind::NotFound)),
        }
    }

    fn rename(&self, name: &str, to: &str) -> Result<()> {
        name::check_rename(name, to)?;
        let mut files = self.files.lock();
        match files.remove(name) {
            Some(file) => drop(files.insert(to.to_owned(), file)),
            None => return Err(Error::from_kind("rename", name, io::ErrorKind::NotFound)),
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self.files.lock().keys().cloned().collect())
    }

    fn sync_directory(&self) -> Result<()> {
        Ok(())
    }

    fn channel(&self, options: ChannelOptions) -> Result<NullChannel> {
        Ok(NullChannel {
            done: VecDeque::with_capacity(options.depth),
            depth: options.depth,
            notify: options.notify,
        })
    }

    fn free_bytes(&self) -> Result<u64> {
        Ok(u64::MAX)
    }
}

/// A file without content: only a length.
#[derive(Debug, Clone)]
pub struct NullFile {
    name: Arc<str>,
    len: Arc<AtomicU64>,
}

impl NullFile {
    fn extend(&self, offset: u64, len: u64) {
        // Relaxed: the number alone is shared.
        self.len
            .fetch_max(offset.saturating_add(len), Ordering::Relaxed);
    }

    fn length(&self) -> u64 {
        // Relaxed: the number alone is shared.
        self.len.load(Ordering::Relaxed)
    }

    fn check_read(&self, wanted: usize, offset: u64) -> Result<()> {
        let there = self.length().saturating_sub(offset);
        if there >= wanted as u64 {
            return Ok(());
        }
        Err(Error::ShortRead {
            name: self.name.to_string(),
            offset,
            wanted,
            got: usize::try_from(there).unwrap_or(usize::MAX),
        })
    }
}

impl File for NullFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.check_read(buffer.len(), offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.extend(offset, bytes.len() as u64);
        Ok(())
    }

    fn write_vectored_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.extend(offset, parts.iter().map(|part| part.len() as u64).sum());
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.length())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        // Relaxed: the number alone is shared.
        self.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        if len > 0 {
            self.extend(offset, len);
        }
        Ok(())
    }

    fn punch(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn alignment(&self) -> usize {
        1
    }

    fn is_direct(&self) -> bool {
        false
    }
}

/// Requests that are done when they are submitted.
#[derive(Debug)]
pub struct NullChannel {
    done: VecDeque<Completion>,
    depth: usize,
    notify: Waker,
}

impl NullChannel {
    fn end(
        &mut self,
        buffer: IoBuf,
        tag: u64,
        result: Result<()>,
    ) -> std::result::Result<(), IoBuf> {
        if self.done.len() >= self.depth {
            return Err(buffer);
        }
        let was_empty = self.done.is_empty();
        self.done.push_back(Completion {
            tag,
            buffer,
            result,
        });
        if was_empty {
            self.notify.wake_by_ref();
        }
        Ok(())
    }
}

impl Channel for NullChannel {
    type File = NullFile;

    fn submit_read(
        &mut self,
        file: &NullFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf> {
        let result = file.check_read(buffer.len(), offset);
        self.end(buffer, tag, result)
    }

    fn submit_write(
        &mut self,
        file: &NullFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf> {
        let result = file.write_at(&buffer, offset);
        self.end(buffer, tag, result)
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize {
        let count = self.done.len().min(REAP_MAX);
        completions.extend(self.done.drain(..count));
        if !self.done.is_empty() {
            self.notify.wake_by_ref();
        }
        count
    }

    /// Returns at once, since all requests in flight are done.
    fn wait(&mut self, _timeout: Option<Duration>) {}

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn waker(&mut self) -> Waker {
        // Nobody ever waits here.
        Waker::noop().clone()
    }
}
