//! Where the lines of the log go: a file, or standard error. It may take nothing for a while, or
//! never again: a pipe whose reader hangs, a terminal that was stopped with Ctrl-S. A line that
//! finds no room is dropped, and the next one that finds room says how many were (decision 047).
//!
//! The lock of standard error makes lines wait for each other: between the look for room and the
//! write nobody else of this process takes that room.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use pando_sync::Arc;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use crate::log_format::LogFormat;

/// Longest wait of a line for room. An event loop may have written it.
const PATIENCE: Duration = Duration::from_millis(20);
/// Number of bytes that a pipe takes at once if it has room for any: `PIPE_BUF`.
const PIECE_BYTES: usize = 4096;
const MISSING: &str = "lines of the log are missing: what they were written to had no room";

/// A place for lines.
pub(crate) enum Place {
    Error(io::Stderr),
    File(Arc<File>),
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Error(error) => error.as_fd(),
            Self::File(file) => file.as_fd(),
        }
    }
}

impl Place {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Error(error) => error.lock().write_all(bytes),
            Self::File(file) => (&**file).write_all(bytes),
        }
    }

    /// Returns true if a write of [`PIECE_BYTES`] would not wait, now or within `patience`. It may
    /// fail, as when nobody can read it any more.
    fn has_room(&self, patience: Duration) -> bool {
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        let mut asked = [PollFd::new(self, PollFlags::OUT)];
        loop {
            match poll(&mut asked, Some(&patience)) {
                Err(Errno::INTR) => {}
                // What cannot be asked is written to, as a file would be.
                ready => return ready != Ok(0),
            }
        }
    }
}

/// What is known of the places of one log. Guarded by the lock of standard error; relaxed
/// throughout, therefore.
#[derive(Debug)]
pub(crate) struct LogSink {
    format: LogFormat,
    /// A line has waited in vain: others do not wait until one finds room.
    is_full: AtomicBool,
    /// Number of lines dropped since the last one that was written.
    left_out: AtomicU64,
    /// The last bytes written are no whole line.
    is_torn: AtomicBool,
}

impl LogSink {
    pub(crate) fn new(format: LogFormat) -> Self {
        Self {
            format,
            is_full: AtomicBool::new(false),
            left_out: AtomicU64::new(0),
            is_torn: AtomicBool::new(false),
        }
    }

    /// Writes a line, or drops it. What cannot be written is dropped without a word: there is
    /// nowhere to say so.
    fn write(&self, place: &Place, line: &[u8]) {
        let _turn = io::stderr().lock();
        let left_out = self.left_out.load(Ordering::Relaxed);
        if left_out > 0 {
            if !self.write_pieces(place, self.missing(left_out).as_bytes()) {
                self.left_out.store(left_out + 1, Ordering::Relaxed);
                return;
            }
            self.left_out.store(0, Ordering::Relaxed);
        }
        if !self.write_pieces(place, line) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns false if there was no room for all.
    fn write_pieces(&self, place: &Place, text: &[u8]) -> bool {
        let patience = match self.is_full.load(Ordering::Relaxed) {
            true => Duration::ZERO,
            false => PATIENCE,
        };
        for (index, piece) in text.chunks(PIECE_BYTES).enumerate() {
            if !place.has_room(patience) {
                self.is_full.store(true, Ordering::Relaxed);
                self.is_torn.fetch_or(index > 0, Ordering::Relaxed);
                return false;
            }
            let _: io::Result<()> = place.write(piece);
        }
        self.is_full.store(false, Ordering::Relaxed);
        true
    }

    /// Returns the line that says how many are missing.
    fn missing(&self, left_out: u64) -> String {
        let mut time = String::new();
        // A string takes everything.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let line = match self.format {
            LogFormat::Text => format!("{time}  WARN pando::log: {MISSING} left_out={left_out}"),
            LogFormat::Json => serde_json::json!({
                "timestamp": time,
                "level": "WARN",
                "message": MISSING,
                "left_out": left_out,
                "target": "pando::log",
            })
            .to_string(),
        };
        match self.is_torn.swap(false, Ordering::Relaxed) {
            true => format!("\n{line}\n"),
            false => format!("{line}\n"),
        }
    }
}

/// What one line is written to.
pub(crate) struct LineWriter {
    pub(crate) sink: Arc<LogSink>,
    pub(crate) place: Place,
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.sink.write(&self.place, line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read as _};
    use std::os::fd::OwnedFd;

    /// Number of pieces that a pipe has room for.
    const PIECES: usize = 16;

    /// Returns a pipe that has so many pieces, and a writer of lines to it.
    fn with(pieces: usize) -> (PipeReader, LineWriter) {
        let (reader, mut writer) = io::pipe().unwrap();
        for _ in 0..pieces {
            writer.write_all(&[b'x'; PIECE_BYTES]).unwrap();
        }
        let place = Place::File(Arc::new(File::from(OwnedFd::from(writer))));
        let sink = Arc::new(LogSink::new(LogFormat::Text));
        (reader, LineWriter { sink, place })
    }

    /// Reads all that is there.
    fn read(reader: &mut PipeReader) -> String {
        let mut bytes = vec![0; (PIECES + 1) * PIECE_BYTES];
        let count = reader.read(&mut bytes).unwrap();
        bytes.truncate(count);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn lines_without_room_are_counted_and_told_of() {
        let (mut reader, mut lines) = with(PIECES);
        for _ in 0..3 {
            lines.write_all(b"lost\n").unwrap();
        }
        assert_eq!(read(&mut reader).len(), PIECES * PIECE_BYTES);
        lines.write_all(b"one\n").unwrap();
        lines.write_all(b"two\n").unwrap();
        let told = read(&mut reader);
        assert!(told.ends_with(&format!(
            "WARN pando::log: {MISSING} left_out=3\none\ntwo\n"
        )));
    }

    /// The line that tells of it begins behind the part.
    #[test]
    fn a_long_line_that_finds_room_for_a_part_ends_there() {
        let (mut reader, mut lines) = with(PIECES - 1);
        lines.write_all(&[b'y'; PIECE_BYTES + 1]).unwrap();
        let part = read(&mut reader);
        assert!(part.ends_with(&"y".repeat(PIECE_BYTES)) && part.len() == PIECES * PIECE_BYTES);
        lines.write_all(b"next\n").unwrap();
        let rest = read(&mut reader);
        assert!(
            rest.starts_with('\n') && rest.ends_with("left_out=1\nnext\n"),
            "{rest}"
        );
    }
}
