//! The requests in flight of a channel whose kernel interface moves bytes piece by piece.
//!
//! Each has a slot from its submission to its completion; the slot's number is what the kernel
//! hands back. Slots are made with the channel, so a request allocates nothing. A piece may be
//! shorter than what is left: the request goes on until it is whole or nothing comes any more.
//! A file is kept open while the table knows it, which is at least until its last request ends.

use std::io;

use crate::buffer::IoBuf;
use crate::device::Completion;
use crate::directory::DirectoryFile;
use crate::directory::file::RETRIES_MAX;
use crate::error::{Error, Result};

/// Files that the table goes on knowing when they have no request in flight.
pub(crate) const FILES_KEPT: usize = 16;
/// Most bytes of one piece; a multiple of every alignment.
const PIECE_BYTES_MAX: usize = 1 << 30;

#[derive(Debug)]
struct KnownFile {
    file: DirectoryFile,
    requests: u32,
}

/// The files of a channel's requests. A number means the same file until it has no request.
#[derive(Debug, Default)]
struct Files {
    list: Vec<KnownFile>,
    /// Where the last search ended.
    last: usize,
}

impl Files {
    /// The number of `file`, and whether it is a new one.
    fn number_of(&mut self, file: &DirectoryFile) -> (usize, bool) {
        let is_same = |known: &KnownFile| known.file.is_same(file);
        if self.list.get(self.last).is_some_and(is_same) {
            return (self.last, false);
        }
        if let Some(at) = self.list.iter().position(is_same) {
            self.last = at;
            return (at, false);
        }
        let known = KnownFile {
            file: file.clone(),
            requests: 0,
        };
        let idle = match self.list.len() < FILES_KEPT {
            true => None,
            false => self.list.iter().position(|known| known.requests == 0),
        };
        self.last = match idle {
            Some(at) => {
                self.list[at] = known;
                at
            }
            None => {
                self.list.push(known);
                self.list.len() - 1
            }
        };
        (self.last, true)
    }
}

#[derive(Debug)]
struct Request {
    write: bool,
    file: usize,
    offset: u64,
    buffer: IoBuf,
    tag: u64,
    /// Bytes moved.
    done: usize,
    /// Pieces since the last one that moved bytes.
    retries: u32,
    /// Known before the kernel has seen it.
    refused: Option<Error>,
}

/// What the kernel is to do next for a request.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) write: bool,
    /// Number and handle of the file.
    pub(crate) file: usize,
    pub(crate) handle: &'a DirectoryFile,
    pub(crate) offset: u64,
    /// `len` bytes of the request's buffer, which stays in its slot.
    pub(crate) address: *mut u8,
    pub(crate) len: u32,
    pub(crate) buffer: &'a IoBuf,
    /// Nothing is to be moved: the request ends with an error that is known already.
    pub(crate) refused: bool,
}

/// A request that was taken.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) slot: u32,
    /// Number of a file that the table has not known so.
    pub(crate) new_file: Option<usize>,
}

/// Slots and files of a channel.
#[derive(Debug)]
pub(crate) struct Requests {
    slots: Vec<Option<Request>>,
    free: Vec<u32>,
    files: Files,
}

impl Requests {
    pub(crate) fn new(depth: usize) -> Self {
        let count = u32::try_from(depth).expect("a channel's depth is bounded by its ring");
        Self {
            slots: (0..depth).map(|_| None).collect(),
            free: (0..count).rev().collect(),
            files: Files::default(),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a request.
    ///
    /// # Errors
    /// Gives the buffer back when every slot is taken.
    pub(crate) fn begin(
        &mut self,
        write: bool,
        file: &DirectoryFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<Begun, IoBuf> {
        let Some(slot) = self.free.pop() else {
            return Err(buffer);
        };
        let (number, is_new) = self.files.number_of(file);
        self.files.list[number].requests += 1;
        let place = &mut self.slots[slot as usize];
        assert!(place.is_none(), "a free slot has a request");
        *place = Some(Request {
            write,
            file: number,
            offset,
            refused: file.check_request(write, &buffer, offset).err(),
            buffer,
            tag,
            done: 0,
            retries: 0,
        });
        Ok(Begun {
            slot,
            new_file: is_new.then_some(number),
        })
    }

    pub(crate) fn handle(&self, file: usize) -> &DirectoryFile {
        &self.files.list[file].file
    }

    /// What is left of the request in `slot`.
    pub(crate) fn piece(&mut self, slot: u32) -> Piece<'_> {
        let request = self.slots[slot as usize]
            .as_mut()
            .expect("the kernel is told of slots in use only");
        let start = match request.write {
            true => request.buffer.source().cast_mut(),
            false => request.buffer.target(),
        };
        let len = (request.buffer.len() - request.done).min(PIECE_BYTES_MAX);
        Piece {
            write: request.write,
            file: request.file,
            handle: &self.files.list[request.file].file,
            offset: request.offset.saturating_add(request.done as u64),
            address: start.wrapping_add(request.done),
            len: u32::try_from(len).expect("a piece is at most PIECE_BYTES_MAX long"),
            buffer: &request.buffer,
            refused: request.refused.is_some(),
        }
    }

    /// Takes the kernel's answer to a piece: bytes, or the negative of an error number. `None`:
    /// the request goes on with another piece.
    pub(crate) fn end_piece(&mut self, slot: u32, answer: i64) -> Option<Completion> {
        let request = self.slots[slot as usize]
            .as_mut()
            .expect("each slot is answered once a piece");
        let file = &self.files.list[request.file].file;
        let result = match advance(request, file, answer) {
            Advance::Again => return None,
            Advance::End(result) => result,
        };
        Some(self.end(slot, result))
    }

    /// Ends the request in `slot`, which the kernel does not know, with an error.
    pub(crate) fn fail(&mut self, slot: u32, source: io::Error) -> Completion {
        let request = self.slots[slot as usize].as_mut().expect("a slot in use");
        let error = match request.refused.take() {
            Some(error) => error,
            None => self.files.list[request.file]
                .file
                .error(verb(request.write), source),
        };
        self.end(slot, Err(error))
    }

    /// Ends all requests, of a process that has only a copy of them.
    pub(crate) fn abandon(&mut self, completions: &mut Vec<Completion>) -> usize {
        let mut count = 0;
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some() && count < crate::device::REAP_MAX {
                // The slots were counted by a u32 when they were made.
                completions.push(self.end(slot as u32, Err(Error::Forked)));
                count += 1;
            }
        }
        count
    }

    fn end(&mut self, slot: u32, result: Result<()>) -> Completion {
        let request = self.slots[slot as usize]
            .take()
            .expect("each request ends once");
        self.free.push(slot);
        let known = &mut self.files.list[request.file];
        assert!(known.requests > 0, "a file has fewer requests than ended");
        known.requests -= 1;
        Completion {
            tag: request.tag,
            buffer: request.buffer,
            result,
        }
    }
}

fn verb(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

enum Advance {
    Again,
    End(Result<()>),
}

/// Counts what a piece has moved. Of a direct file a piece that ends unaligned is tried again from
/// the last aligned place, unless it began there.
fn advance(request: &mut Request, file: &DirectoryFile, answer: i64) -> Advance {
    if let Some(error) = request.refused.take() {
        return Advance::End(Err(error));
    }
    let len = request.buffer.len();
    let Ok(count) = usize::try_from(answer) else {
        let code = i32::try_from(-answer).unwrap_or(libc::EIO);
        return match code {
            libc::EINTR => Advance::Again,
            // A thread that ends takes requests back that it handed to a worker.
            libc::EAGAIN | libc::ECANCELED if request.retries < RETRIES_MAX => {
                request.retries += 1;
                Advance::Again
            }
            _ => {
                let source = io::Error::from_raw_os_error(code);
                Advance::End(Err(file.error(verb(request.write), source)))
            }
        };
    };
    assert!(
        count <= len - request.done,
        "more bytes moved than were asked for"
    );
    request.done += count;
    request.retries = 0;
    if request.done == len {
        return Advance::End(Ok(()));
    }
    let aligned = file.aligned_part(request.done);
    if count == 0 || (aligned < request.done && aligned == request.done - count) {
        let error = match request.write {
            true => file.error("write", io::ErrorKind::WriteZero.into()),
            false => file.short_read(request.offset, len, request.done),
        };
        return Advance::End(Err(error));
    }
    request.done = aligned;
    Advance::Again
}
