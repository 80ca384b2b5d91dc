//! The requests in flight of a channel whose kernel interface moves bytes piece by piece.
//!
//! Each request has a slot from its submission to its completion, and the kernel returns the slot's
//! number. Slots are made with the channel, so a request allocates nothing. The kernel may move
//! fewer bytes than requested: the request continues until it is complete or no more bytes come. A
//! file is kept open while it is in the table, which is at least until its last request ends.

use std::io;

use crate::buffer::IoBuf;
use crate::device::Completion;
use crate::directory::DirectoryFile;
use crate::directory::file::RETRIES_MAX;
use crate::error::{Error, Result};

/// Number of files that stay in the table when they have no request in flight.
pub(crate) const FILES_KEPT: usize = 16;
/// Maximum number of bytes of one piece, a multiple of every alignment.
const PIECE_BYTES_MAX: usize = 1 << 30;

#[derive(Debug)]
struct KnownFile {
    file: DirectoryFile,
    requests: u32,
}

/// The files of a channel's requests. A number means the same file as long as the file has a
/// request.
#[derive(Debug, Default)]
struct Files {
    list: Vec<KnownFile>,
    /// Where the last search ended.
    last: usize,
}

impl Files {
    /// Returns the number of `file`, and whether the number is new.
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
    /// Number of bytes moved.
    done: usize,
    /// Number of pieces since the last one that moved bytes.
    retries: u32,
    /// An error that is known before the kernel sees the request.
    refused: Option<Error>,
}

/// What the kernel does next for a request.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    /// True: the kernel reads `address` and writes the file; false: the reverse.
    pub(crate) write: bool,
    /// Number and handle of the file.
    pub(crate) file: usize,
    /// Open at least until the request ends.
    pub(crate) handle: &'a DirectoryFile,
    /// Offset in the file, in bytes.
    pub(crate) offset: u64,
    /// `len` bytes of the request's buffer, which stays in its slot.
    pub(crate) address: *mut u8,
    /// Not beyond the end of the request's buffer.
    pub(crate) len: u32,
    /// The whole buffer of the request.
    pub(crate) buffer: &'a IoBuf,
    /// Nothing is moved: the request ends with an error that is known already.
    pub(crate) refused: bool,
}

/// A request that got a slot.
#[derive(Debug)]
pub(crate) struct Begun {
    /// The number by which the kernel returns the request.
    pub(crate) slot: u32,
    /// Number of the file, if it is new in the table.
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
    /// Makes `depth` slots. Panics if that does not fit into 32 bits.
    pub(crate) fn new(depth: usize) -> Self {
        let count = u32::try_from(depth).expect("a channel's depth is bounded by its ring");
        Self {
            slots: (0..depth).map(|_| None).collect(),
            free: (0..count).rev().collect(),
            files: Files::default(),
        }
    }

    /// Returns the number of slots in use.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Gives a request a slot.
    ///
    /// # Errors
    /// Returns the buffer when every slot is taken.
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

    /// Returns the file with that number. Panics if there is none.
    pub(crate) fn handle(&self, file: usize) -> &DirectoryFile {
        &self.files.list[file].file
    }

    /// Returns the rest of the request in `slot`.
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

    /// Takes the kernel's answer to a piece: a number of bytes, or a negative error number. Returns
    /// `None` if the request continues with another piece.
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

    /// Ends all requests, in a process that only has a copy of them.
    pub(crate) fn abandon(&mut self, completions: &mut Vec<Completion>) -> usize {
        let mut count = 0;
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some() && count < crate::device::REAP_MAX {
                let slot = u32::try_from(slot).expect("a u32 counted them when they were made");
                completions.push(self.end(slot, Err(Error::Forked)));
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

/// Counts the bytes that a piece has moved. For a direct file, a piece that ends unaligned is tried
/// again from the last aligned place, unless it began there.
fn advance(request: &mut Request, file: &DirectoryFile, answer: i64) -> Advance {
    if let Some(error) = request.refused.take() {
        return Advance::End(Err(error));
    }
    let len = request.buffer.len();
    let Ok(count) = usize::try_from(answer) else {
        let code = i32::try_from(-answer).unwrap_or(libc::EIO);
        return match code {
            libc::EINTR => Advance::Again,
            // The kernel cancels requests that a thread had passed to a worker when the thread
            // ends.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Create, Device, File, OpenOptions};
    use crate::directory::DirectoryDevice;

    /// Begins a request of `len` bytes at offset 8192 of a new file, and passes its slot to `case`.
    /// Skips a direct request where the file system has no direct I/O.
    fn request(direct: bool, write: bool, len: usize, case: impl FnOnce(&mut Requests, u32)) {
        let place = tempfile::tempdir().unwrap();
        let device = DirectoryDevice::open_directory(place.path(), false, 1).unwrap();
        let mut how = OpenOptions::create(Create::New);
        how.direct = direct;
        let file = device.open("data", how).unwrap();
        if direct && !file.is_direct() {
            eprintln!("SKIPPED: no direct I/O here");
            return;
        }
        let mut requests = Requests::new(2);
        let begun = requests.begin(write, &file, 8192, IoBuf::new(len), 7);
        case(&mut requests, begun.unwrap().slot);
    }

    fn place(requests: &mut Requests, slot: u32) -> (u64, usize, u32) {
        let piece = requests.piece(slot);
        let within = piece.address.addr() - piece.buffer.as_ptr().addr();
        (piece.offset, within, piece.len)
    }

    #[test]
    fn short_pieces_go_on_where_they_ended() {
        for write in [false, true] {
            request(false, write, 1000, |requests, slot| {
                assert_eq!(place(requests, slot), (8192, 0, 1000));
                assert!(requests.end_piece(slot, 300).is_none());
                assert_eq!(place(requests, slot), (8492, 300, 700));
                assert!(requests.end_piece(slot, 1).is_none());
                assert_eq!(place(requests, slot), (8493, 301, 699));
                let done = requests.end_piece(slot, 699).unwrap();
                done.result.unwrap();
                assert_eq!((done.tag, done.buffer.len()), (7, 1000));
                assert_eq!(requests.in_flight(), 0);
            });
        }
    }

    #[test]
    fn short_pieces_of_direct_files_go_on_from_an_aligned_place() {
        request(true, false, 3 * 4096, |requests, slot| {
            assert!(requests.end_piece(slot, 4096 + 77).is_none());
            let (offset, within, len) = place(requests, slot);
            assert!((4096..=4096 + 77).contains(&within), "{within}");
            assert_eq!(offset, 8192 + within as u64);
            assert_eq!(len as usize, 3 * 4096 - within);
            assert_eq!(within % 512, 0);
            // The next piece ends at the end of the file.
            let done = requests.end_piece(slot, 77).unwrap();
            assert!(matches!(
                done.result,
                Err(Error::ShortRead { got, .. }) if got == within + 77
            ));
        });
    }

    #[test]
    fn nothing_more_is_the_end() {
        request(false, false, 100, |requests, slot| {
            assert!(requests.end_piece(slot, 40).is_none());
            let done = requests.end_piece(slot, 0).unwrap();
            let result = done.result;
            assert!(matches!(
                result,
                Err(Error::ShortRead {
                    got: 40,
                    wanted: 100,
                    offset: 8192,
                    ..
                })
            ));
        });
        request(false, true, 100, |requests, slot| {
            assert!(requests.end_piece(slot, 0).unwrap().result.is_err());
        });
    }

    #[test]
    fn passing_refusals_are_tried_again_and_lasting_ones_reported() {
        for passing in [libc::EINTR, libc::EAGAIN, libc::ECANCELED] {
            request(false, false, 100, |requests, slot| {
                for _ in 0..RETRIES_MAX {
                    assert!(requests.end_piece(slot, -i64::from(passing)).is_none());
                }
                let last = requests.end_piece(slot, -i64::from(passing));
                assert_eq!(last.is_none(), passing == libc::EINTR);
            });
        }
        request(false, false, 100, |requests, slot| {
            let done = requests.end_piece(slot, -i64::from(libc::EIO)).unwrap();
            assert_eq!(
                done.result.unwrap_err().to_string(),
                "cannot read data: Input/output error (os error 5)"
            );
        });
    }

    #[test]
    fn a_file_keeps_its_number_as_long_as_it_has_requests() {
        let place = tempfile::tempdir().unwrap();
        let device = DirectoryDevice::open_directory(place.path(), false, 1).unwrap();
        let open = |number: usize| {
            let how = OpenOptions::create(Create::New);
            device.open(&format!("file-{number}"), how).unwrap()
        };
        let mut requests = Requests::new(100);
        let files: Vec<_> = (0..2 * FILES_KEPT).map(open).collect();
        let begin = |requests: &mut Requests, number: usize| {
            let begun = requests.begin(false, &files[number], 0, IoBuf::new(1), 0);
            let begun = begun.unwrap();
            (begun.slot, begun.new_file)
        };
        let (first, new) = begin(&mut requests, 0);
        assert_eq!(new, Some(0));
        for number in 1..2 * FILES_KEPT {
            let (slot, new) = begin(&mut requests, number);
            assert!(new.is_some_and(|new| new > 0 && new <= FILES_KEPT));
            requests.end_piece(slot, 1).unwrap();
        }
        assert_eq!(begin(&mut requests, 0).1, None);
        assert!(requests.piece(first).handle.is_same(&files[0]));
    }
}
