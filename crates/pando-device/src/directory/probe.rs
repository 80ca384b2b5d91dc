//! The probe: finds out what the file system of a directory can do, before its first file exists.
//!
//! It makes a temporary file, and writes and reads it in the ways that will be used. Failures here
//! are not errors: they mean that less is possible, and give the reason.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

use super::system;
use crate::buffer::{IO_ALIGNMENT, IoBuf};

/// Alignment of direct files in bytes where the file system does not report it.
const DIRECT_ALIGNMENT_DEFAULT: usize = 4096;

/// Tells whether files can bypass the page cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectIo {
    /// They can, with requests aligned to this many bytes.
    Aligned(usize),
    /// They cannot, for this reason.
    Refused(String),
}

impl DirectIo {
    /// Returns the alignment, if they can.
    pub fn alignment(&self) -> Option<usize> {
        match self {
            Self::Aligned(bytes) => Some(*bytes),
            Self::Refused(_) => None,
        }
    }
}

/// Result of the probe.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) direct: DirectIo,
    /// Why a read through a ring would go to a worker thread, if that is the case.
    pub(super) ring_hands_over: Option<String>,
}

impl Probe {
    /// Returns the result for a read-only directory, where nothing may be made and nothing is
    /// known.
    pub(super) fn of_a_reader() -> Self {
        let why = "a directory that is only read is not tried".to_owned();
        Self {
            direct: DirectIo::Refused(why.clone()),
            ring_hands_over: Some(why),
        }
    }
}

/// Opens a second descriptor of an existing file that bypasses the page cache. Also returns its
/// alignment.
///
/// # Errors
/// The reason why it cannot.
pub(super) fn open_direct(path: &Path, write: bool) -> Result<(fs::File, usize), String> {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .map_err(|error| format!("the file system refuses direct I/O ({error})"))?;
    let alignment = system::direct_alignment(&file).unwrap_or(DIRECT_ALIGNMENT_DEFAULT);
    let usable = alignment.is_power_of_two() && (2..=IO_ALIGNMENT).contains(&alignment);
    if usable {
        Ok((file, alignment))
    } else {
        Err(format!(
            "direct I/O would have to be aligned to {alignment} bytes"
        ))
    }
}

/// A file that is removed on drop.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // If the file remains, no listing shows its name.
        let _ = fs::remove_file(&self.0);
    }
}

/// Probes the file system of `directory`, where files can be made.
pub(super) fn look(directory: &Path) -> Probe {
    let path = directory.join(format!(".probe-{}", process::id()));
    let made = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path);
    let buffered = match made {
        Ok(file) => file,
        Err(error) => {
            let why = format!("no file can be made to try it ({error})");
            return Probe {
                direct: DirectIo::Refused(why.clone()),
                ring_hands_over: Some(why),
            };
        }
    };
    let _scratch = Scratch(path.clone());
    let (file, direct) = match open_direct(&path, true) {
        Ok((file, alignment)) => (file, DirectIo::Aligned(alignment)),
        Err(why) => (buffered, DirectIo::Refused(why)),
    };
    // On a full disk the file is empty, which is sufficient, too.
    let _ = file.write_all_at(&IoBuf::new(IO_ALIGNMENT), 0);
    let ring_hands_over = match system::read_without_waiting(&file, &mut IoBuf::new(IO_ALIGNMENT)) {
        Ok(_) => None,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => Some(format!(
            "the file system would hand every read to a worker thread ({error})"
        )),
    };
    Probe {
        direct,
        ring_hands_over,
    }
}
