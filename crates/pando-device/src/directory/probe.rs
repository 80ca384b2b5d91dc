//! The probe: finds out what the file system of a directory can do, before its first file exists.
//!
//! It makes a temporary file, and writes and reads it in the ways that will be used. Failures here
//! are not errors: they mean that less is possible, and give the reason.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::process;

use super::root::Root;
use super::system;
use crate::buffer::{IO_ALIGNMENT, IoBuf};
use crate::device::{Create, OpenOptions};

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

/// Why a file is not opened past the page cache.
#[derive(Debug)]
pub(super) enum NotDirect {
    /// The file system cannot, for this reason.
    Refused(String),
    /// The process or the system has no more descriptors or memory now: nobody knows.
    Failed(io::Error),
}

/// Opens a second descriptor of the existing file `name` that bypasses the page cache. Also returns
/// its alignment.
///
/// # Errors
/// The reason why it cannot.
pub(super) fn open_direct(
    root: &Root,
    name: &str,
    options: OpenOptions,
) -> Result<(fs::File, usize), NotDirect> {
    let options = OpenOptions {
        create: Create::Never,
        ..options
    };
    let file = root
        .open_file(name, options, libc::O_DIRECT)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => NotDirect::Failed(error),
            _ => NotDirect::Refused(format!("the file system refuses direct I/O ({error})")),
        })?;
    let alignment = system::direct_alignment(&file).unwrap_or(DIRECT_ALIGNMENT_DEFAULT);
    let usable = alignment.is_power_of_two() && (2..=IO_ALIGNMENT).contains(&alignment);
    if usable {
        Ok((file, alignment))
    } else {
        Err(NotDirect::Refused(format!(
            "direct I/O would have to be aligned to {alignment} bytes"
        )))
    }
}

/// A file that is removed on drop.
struct Scratch<'a>(&'a Root, &'a str);

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // If the file remains, no listing shows its name.
        let _ = self.0.remove(self.1);
    }
}

/// Probes the file system of `root`, where files can be made.
///
/// # Errors
/// If the process or the system has no more descriptors or memory: nothing is known then.
pub(super) fn look(root: &Root) -> io::Result<Probe> {
    let name = format!(".probe-{}", process::id());
    let options = OpenOptions::create(Create::IfAbsent);
    let buffered = match root.open_file(&name, options, libc::O_TRUNC) {
        Ok(file) => file,
        Err(error) => {
            let why = format!("no file can be made to try it ({error})");
            return Ok(Probe {
                direct: DirectIo::Refused(why.clone()),
                ring_hands_over: Some(why),
            });
        }
    };
    let _scratch = Scratch(root, &name);
    let (file, direct) = match open_direct(root, &name, options) {
        Ok((file, alignment)) => (file, DirectIo::Aligned(alignment)),
        Err(NotDirect::Refused(why)) => (buffered, DirectIo::Refused(why)),
        Err(NotDirect::Failed(error)) => return Err(error),
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
    Ok(Probe {
        direct,
        ring_hands_over,
    })
}
