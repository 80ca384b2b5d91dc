//! Which way to the disk, and the device that goes it.

use std::path::Path;

use pando_device::{
    AnyDevice, Backend, DirectoryDevice, DirectoryOptions, Error as DeviceError, MemoryDevice,
    NullDevice,
};

use crate::error::{Error, Result};

/// Bytes that a store in memory may take beside its budget.
const MEMORY_DEVICE_BYTES: u64 = 1 << 40;

/// Which way to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoBackend {
    /// The best one that works here: uring where it does not hand reads to worker threads, then
    /// libaio where files can go past the page cache, then pread.
    #[default]
    Auto,
    /// Rings of the kernel (io_uring); where there are none, as libaio.
    Uring,
    /// Rings, or an error.
    UringOnly,
    /// The kernel's older asynchronous interface; where it cannot be had, as pread.
    Libaio,
    /// The kernel's older asynchronous interface, or an error.
    LibaioOnly,
    /// Blocking reads and writes, spread over threads for event loops.
    Pread,
    /// No files at all: everything is gone when the store is closed.
    Memory,
    /// Files without content: measures what lies above the device. No store can live there.
    Null,
}

impl IoBackend {
    /// The way called `name`: auto, uring, libaio, pread, memory or null. A `!` behind it says that
    /// no other will do.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "auto" | "auto!" => Self::Auto,
            "uring" => Self::Uring,
            "uring!" => Self::UringOnly,
            "libaio" => Self::Libaio,
            "libaio!" => Self::LibaioOnly,
            "pread" | "pread!" => Self::Pread,
            "memory" | "memory!" => Self::Memory,
            "null" | "null!" => Self::Null,
            _ => return None,
        })
    }

    /// True if there is a directory with files.
    pub fn has_files(self) -> bool {
        !matches!(self, Self::Memory | Self::Null)
    }

    /// A device that goes this way, over `directory` where there are files; at most
    /// `completion_threads` threads read where nothing better does.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::Io`]; [`Error::InvalidOption`] when no other will do and this one
    /// cannot be had.
    pub fn open_device(
        self,
        directory: impl AsRef<Path>,
        completion_threads: usize,
    ) -> Result<AnyDevice> {
        let (backend, strict) = match self {
            Self::Memory => return Ok(MemoryDevice::new(MEMORY_DEVICE_BYTES).into()),
            Self::Null => return Ok(NullDevice::new().into()),
            Self::Auto => (None, false),
            Self::Uring => (Some(Backend::Uring), false),
            Self::UringOnly => (Some(Backend::Uring), true),
            Self::Libaio => (Some(Backend::Libaio), false),
            Self::LibaioOnly => (Some(Backend::Libaio), true),
            Self::Pread => (Some(Backend::Pread), false),
        };
        let options = DirectoryOptions {
            read_only: false,
            backend,
            strict,
            completion_threads,
        };
        match DirectoryDevice::open_with(directory, options) {
            Ok(device) => Ok(device.into()),
            Err(error @ DeviceError::Unavailable { .. }) => Err(Error::InvalidOption {
                option: "io_backend",
                what: error.to_string(),
            }),
            Err(error) => Err(Error::io("opening the directory")(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_no_other_replaces_has_an_exclamation_mark() {
        assert_eq!(IoBackend::from_name("uring!"), Some(IoBackend::UringOnly));
        assert_eq!(IoBackend::from_name("pread!"), Some(IoBackend::Pread));
        assert_eq!(IoBackend::from_name("disk"), None);
        assert_eq!(IoBackend::from_name("uring!!"), None);
    }
}
