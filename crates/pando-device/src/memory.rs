//! Files in memory. Nothing survives the process, every sync succeeds, and every request completes
//! when the next one is submitted or the channel is flushed.
//!
//! Content is stored in chunks, so that growth copies nothing. A chunk is locked only while its
//! bytes are copied, so a read across chunks is not atomic with respect to a write (nor is one of a
//! disk). Lock order: `Content::chunks`, then a chunk; `Shared::files` is a leaf.

use std::collections::BTreeMap;
use std::io;
use std::task::Waker;

use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::time::Duration;
use pando_sync::words::prefetch_bytes;
use pando_sync::{Arc, Mutex, Rank, RwLock, WakerArc};

use crate::buffer::IoBuf;
use crate::chunk::Chunk;
use crate::completions::Completions;
use crate::device::{Channel, ChannelOptions, Completion, Create, Device, File, OpenOptions};
use crate::error::{Error, Lack, Result};
use crate::name;

const CHUNK_BYTES: u64 = Chunk::BYTES as u64;
/// Index of the first chunk of a file that uses huge pages, so that small files stay small.
const HUGE_FROM: usize = 8;

/// A directory in memory.
#[derive(Debug, Clone)]
pub struct MemoryDevice {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Files by name.
    files: Mutex<BTreeMap<String, Arc<Content>>>,
    space: Arc<Space>,
}

/// The limit of the sum of all file lengths, and the present sum, in bytes.
#[derive(Debug)]
struct Space {
    /// Maximum of `used`, in bytes.
    capacity: AtomicU64,
    /// Sum of the lengths of all files, in bytes.
    used: AtomicU64,
}

impl Space {
    /// Adds `bytes` to the used bytes if the capacity allows.
    fn take(&self, bytes: u64) -> bool {
        let capacity = self.capacity.load(Ordering::Relaxed);
        // Relaxed: the count alone is shared; nothing is published through it.
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= capacity)
            })
            .is_ok()
    }

    fn give_back(&self, bytes: u64) {
        // Relaxed: as in take.
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "more space is given back than was taken");
    }
}

/// The bytes of one file, freed with its name and its last handle.
#[derive(Debug)]
struct Content {
    name: String,
    chunks: RwLock<Chunks>,
    space: Arc<Space>,
}

#[derive(Debug, Default)]
struct Chunks {
    /// Exactly as many chunks as `len` needs. Bytes after `len` are zeros.
    list: Vec<RwLock<Chunk>>,
    len: u64,
}

impl Chunks {
    fn resize(&mut self, len: u64) {
        let count = index(len.div_ceil(CHUNK_BYTES));
        let mut next = self.list.len();
        self.list.resize_with(count, || {
            next += 1;
            RwLock::new(Rank::Leaf, Chunk::new(next > HUGE_FROM))
        });
        if len < self.len
            && let Some(last) = self.list.last()
            && !len.is_multiple_of(CHUNK_BYTES)
        {
            last.write()[index(len % CHUNK_BYTES)..].fill(0);
        }
        self.len = len;
    }

    /// Calls `part` for each chunk of `offset .. offset + len`, with the chunk, the range in it,
    /// and the range in the request.
    fn each(
        &self,
        offset: u64,
        len: usize,
        mut part: impl FnMut(&RwLock<Chunk>, std::ops::Range<usize>, std::ops::Range<usize>),
    ) {
        let mut done = 0;
        while done < len {
            let position = offset + done as u64;
            let within = index(position % CHUNK_BYTES);
            let count = (len - done).min(index(CHUNK_BYTES) - within);
            let chunk = &self.list[index(position / CHUNK_BYTES)];
            part(chunk, within..within + count, done..done + count);
            done += count;
        }
    }
}

fn index(value: u64) -> usize {
    usize::try_from(value).expect("what lies in memory is counted by a usize")
}

impl Content {
    /// Returns the end of `offset .. offset + len`, if a file can be that long.
    fn end(&self, operation: &'static str, offset: u64, len: u64) -> Result<u64> {
        offset
            .checked_add(len)
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or_else(|| Error::from_kind(operation, &self.name, io::ErrorKind::FileTooLarge))
    }

    fn extend(&self, operation: &'static str, len: u64) -> Result<()> {
        if self.chunks.read().len >= len {
            return Ok(());
        }
        let mut chunks = self.chunks.write();
        if chunks.len < len {
            if !self.space.take(len - chunks.len) {
                return Err(Error::Full {
                    operation,
                    name: self.name.clone(),
                    lack: Lack::Space,
                });
            }
            chunks.resize(len);
        }
        Ok(())
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.space.give_back(self.chunks.read().len);
    }
}

impl MemoryDevice {
    /// Makes an empty directory whose files may have `capacity_bytes` bytes together.
    pub fn new(capacity_bytes: u64) -> Self {
        let space = Arc::new(Space {
            capacity: AtomicU64::new(capacity_bytes),
            used: AtomicU64::new(0),
        });
        pando_sync::audit::name("memory device space", &*space);
        Self {
            shared: Arc::new(Shared {
                files: Mutex::new(Rank::Leaf, BTreeMap::new()),
                space,
            }),
        }
    }

    /// Changes the capacity. A capacity below the used bytes only stops growth.
    pub fn set_capacity(&self, bytes: u64) {
        // Relaxed: a limit; nothing is published through it.
        self.shared.space.capacity.store(bytes, Ordering::Relaxed);
    }
}

impl Device for MemoryDevice {
    type File = MemoryFile;
    type Channel = MemoryChannel;

    fn backend(&self) -> &'static str {
        "memory"
    }

    fn open(&self, name: &str, options: OpenOptions) -> Result<MemoryFile> {
        name::check_open(name, options)?;
        let mut files = self.shared.files.lock();
        let content = match (files.get(name), options.create) {
            (Some(_), Create::New) => {
                return Err(Error::from_kind(
                    "create",
                    name,
                    io::ErrorKind::AlreadyExists,
                ));
            }
            (Some(content), _) => content.clone(),
            (None, Create::Never) => {
                return Err(Error::from_kind("open", name, io::ErrorKind::NotFound));
            }
            (None, _) => {
                let content = Arc::new(Content {
                    name: name.to_owned(),
                    chunks: RwLock::new(Rank::MemoryFile, Chunks::default()),
                    space: self.shared.space.clone(),
                });
                files.insert(name.to_owned(), content.clone());
                content
            }
        };
        Ok(MemoryFile {
            content,
            writable: options.write,
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        name::check("remove", name)?;
        let removed = self.shared.files.lock().remove(name);
        match removed {
            Some(_) => Ok(()),
            None => Err(Error::from_kind("remove", name, io::ErrorKind::NotFound)),
        }
    }

    fn rename(&self, name: &str, to: &str) -> Result<()> {
        name::check_rename(name, to)?;
        let mut files = self.shared.files.lock();
        let Some(content) = files.remove(name) else {
            return Err(Error::from_kind("rename", name, io::ErrorKind::NotFound));
        };
        let replaced = files.insert(to.to_owned(), content);
        // Its bytes are given back without the lock.
        drop(files);
        drop(replaced);
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self.shared.files.lock().keys().cloned().collect())
    }

    fn sync_directory(&self) -> Result<()> {
        Ok(())
    }

    fn channel(&self, options: ChannelOptions) -> Result<MemoryChannel> {
        Ok(MemoryChannel {
            done: WakerArc::new(Completions::new(options.depth, options.notify)),
            kept: None,
            depth: options.depth,
            in_flight: 0,
        })
    }

    fn free_bytes(&self) -> Result<u64> {
        let space = &self.shared.space;
        // Relaxed: an estimate, as every answer to this question is.
        let used = space.used.load(Ordering::Relaxed);
        Ok(space.capacity.load(Ordering::Relaxed).saturating_sub(used))
    }
}

/// A file in memory.
#[derive(Debug, Clone)]
pub struct MemoryFile {
    content: Arc<Content>,
    writable: bool,
}

impl MemoryFile {
    fn check_writable(&self, operation: &'static str) -> Result<()> {
        if self.writable {
            Ok(())
        } else {
            Err(Error::from_kind(
                operation,
                &self.content.name,
                io::ErrorKind::PermissionDenied,
            ))
        }
    }
}

impl File for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let chunks = self.content.chunks.read();
        let there = chunks.len.saturating_sub(offset);
        if there < buffer.len() as u64 {
            return Err(Error::ShortRead {
                name: self.content.name.clone(),
                offset,
                wanted: buffer.len(),
                got: index(there),
            });
        }
        chunks.each(offset, buffer.len(), |chunk, from, to| {
            buffer[to].copy_from_slice(&chunk.read()[from]);
        });
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check_writable("write")?;
        if bytes.is_empty() {
            return Ok(());
        }
        let end = self.content.end("write", offset, bytes.len() as u64)?;
        self.content.extend("write", end)?;
        let chunks = self.content.chunks.read();
        if chunks.len < end {
            // Another thread has truncated the file meanwhile: this counts as the write having come
            // first.
            return Ok(());
        }
        chunks.each(offset, bytes.len(), |chunk, to, from| {
            chunk.write()[to].copy_from_slice(&bytes[from]);
        });
        Ok(())
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
        Ok(self.content.chunks.read().len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check_writable("set the length of")?;
        let len = self.content.end("set the length of", 0, len)?;
        self.content.extend("set the length of", len)?;
        let mut chunks = self.content.chunks.write();
        let cut = chunks.len.saturating_sub(len);
        if cut > 0 {
            chunks.resize(len);
            self.content.space.give_back(cut);
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable("allocate")?;
        if len == 0 {
            return Ok(());
        }
        let end = self.content.end("allocate", offset, len)?;
        self.content.extend("allocate", end)
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable("punch")?;
        let end = self.content.end("punch", offset, len)?;
        let chunks = self.content.chunks.read();
        let end = end.min(chunks.len);
        if offset < end {
            chunks.each(offset, index(end - offset), |chunk, within, _| {
                chunk.write()[within].fill(0);
            });
        }
        Ok(())
    }

    fn alignment(&self) -> usize {
        1
    }

    fn is_direct(&self) -> bool {
        false
    }
}

/// Number of bytes of a read that are prefetched while the previous request is served. The
/// processor prefetches the others itself.
const AHEAD_BYTES: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// A request that waits for the next one.
#[derive(Debug)]
struct MemoryRequest {
    direction: Access,
    file: MemoryFile,
    offset: u64,
    buffer: IoBuf,
    tag: u64,
}

/// Requests to files in memory. Each is done when the next one is submitted, or at the latest when
/// the channel is flushed, so that the bytes of one are fetched while those of another are copied.
#[derive(Debug)]
pub struct MemoryChannel {
    done: WakerArc<Completions>,
    kept: Option<MemoryRequest>,
    depth: usize,
    in_flight: usize,
}

impl MemoryFile {
    /// Prefetches the first bytes of a read that is done soon.
    fn expect_read(&self, offset: u64) {
        let chunks = self.content.chunks.read();
        if let Ok(at) = usize::try_from(offset / CHUNK_BYTES)
            && let Some(chunk) = chunks.list.get(at)
        {
            let within = index(offset % CHUNK_BYTES);
            let chunk = chunk.read();
            let end = chunk.len().min(within + AHEAD_BYTES);
            prefetch_bytes(&chunk[within..end]);
        }
    }
}

impl MemoryChannel {
    fn submit(&mut self, request: MemoryRequest) -> std::result::Result<(), IoBuf> {
        if self.in_flight >= self.depth {
            return Err(request.buffer);
        }
        self.in_flight += 1;
        if request.direction == Access::Read {
            request.file.expect_read(request.offset);
        }
        if let Some(before) = self.kept.replace(request) {
            self.serve(before);
        }
        Ok(())
    }

    fn serve(&self, request: MemoryRequest) {
        let MemoryRequest {
            direction,
            file,
            offset,
            mut buffer,
            tag,
        } = request;
        let result = match direction {
            Access::Read => file.read_at(&mut buffer, offset),
            Access::Write => file.write_at(&buffer, offset),
        };
        // Before the completion is visible, so that a caller that has seen the last one may close
        // everything.
        drop(file);
        self.done.push(Completion {
            tag,
            buffer,
            result,
        });
    }
}

impl Channel for MemoryChannel {
    type File = MemoryFile;

    fn submit_read(
        &mut self,
        file: &MemoryFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf> {
        self.submit(MemoryRequest {
            direction: Access::Read,
            file: file.clone(),
            offset,
            buffer,
            tag,
        })
    }

    fn submit_write(
        &mut self,
        file: &MemoryFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf> {
        self.submit(MemoryRequest {
            direction: Access::Write,
            file: file.clone(),
            offset,
            buffer,
            tag,
        })
    }

    fn flush(&mut self) {
        if let Some(request) = self.kept.take() {
            self.serve(request);
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.flush();
        let count = self.done.reap(completions);
        self.in_flight -= count;
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        self.flush();
        if self.in_flight > 0 {
            self.done.wait(timeout);
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn waker(&mut self) -> Waker {
        self.done.clone().into()
    }
}
