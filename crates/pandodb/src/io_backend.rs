//! The interfaces for I/O that a store may use, and the device that uses one.

use std::path::Path;

use pando_device::{
    AnyDevice, Backend, DirectoryDevice, DirectoryOptions, Error as DeviceError, MemoryDevice,
    NullDevice,
};

use crate::error::{Error, Result};

/// Bytes that a store in memory may take besides its budget.
const MEMORY_DEVICE_BYTES: u64 = 1 << 40;

/// Interface for I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoBackend {
    /// The best one that works here: uring if it does not hand reads to worker threads, else libaio
    /// if files can bypass the page cache, else pread.
    #[default]
    Auto,
    /// io_uring; falls back as libaio does if the kernel has none.
    Uring,
    /// io_uring, or an error.
    UringOnly,
    /// The kernel's older asynchronous interface (libaio); falls back to pread.
    Libaio,
    /// The kernel's older asynchronous interface (libaio), or an error.
    LibaioOnly,
    /// Blocking reads and writes, done by several threads for event loops.
    Pread,
    /// No files: everything is gone when the store is closed.
    Memory,
    /// Files without content, to measure what is above the device. No store can be opened on it.
    Null,
}

impl IoBackend {
    /// Returns the interface called `name`: auto, uring, libaio, pread, memory or null. A `!` after
    /// the name rules out every fallback.
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

    /// True if the store has a directory with files.
    pub fn has_files(self) -> bool {
        !matches!(self, Self::Memory | Self::Null)
    }

    /// Opens a device on `directory`, which is not used without files. At most `completion_threads`
    /// threads do its reads if the interface has nothing better.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::Io`]; [`Error::InvalidOption`] if this interface is not available
    /// and no fallback is allowed.
    pub fn open_device(
        self,
        directory: impl AsRef<Path>,
        completion_threads: usize,
    ) -> Result<AnyDevice> {
        self.device(directory.as_ref(), completion_threads, false)
    }

    /// As [`IoBackend::open_device`]; if it is `read_only`, nothing in the directory can be changed
    /// through the device, and others may read it, too.
    pub(crate) fn device(
        self,
        directory: &Path,
        completion_threads: usize,
        read_only: bool,
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
            read_only,
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

    /// A name with an exclamation mark asks for this back end and no substitute.
    #[test]
    fn a_way_that_no_other_replaces_has_an_exclamation_mark() {
        assert_eq!(IoBackend::from_name("uring!"), Some(IoBackend::UringOnly));
        assert_eq!(IoBackend::from_name("pread!"), Some(IoBackend::Pread));
        assert_eq!(IoBackend::from_name("disk"), None);
        assert_eq!(IoBackend::from_name("uring!!"), None);
    }
}
