//! Opens LMDB: the map of a file is unsafe to make, all that follows is not.

#![expect(unsafe_code, reason = "a memory map")]

use std::path::Path;

use heed::{Env, EnvFlags, EnvOpenOptions};

/// What an environment is opened with.
#[derive(Debug, Clone, Copy)]
pub struct LmdbConfig {
    /// Most bytes of the file.
    pub map_bytes: usize,
    /// Most read transactions at once.
    pub readers: u32,
    /// A commit returns when it is on disk.
    pub durable: bool,
    /// The system reads ahead.
    pub read_ahead: bool,
}

/// Opens the environment in `directory`, which belongs to this process alone.
///
/// # Errors
/// Those of LMDB and of the system.
pub fn open_lmdb(directory: &Path, config: LmdbConfig) -> heed::Result<Env> {
    let mut flags = EnvFlags::empty();
    if !config.durable {
        flags |= EnvFlags::NO_SYNC;
    }
    if !config.read_ahead {
        flags |= EnvFlags::NO_READ_AHEAD;
    }
    let mut options = EnvOpenOptions::new();
    options
        .map_size(config.map_bytes)
        .max_readers(config.readers);
    // SAFETY: neither flag lets LMDB write through the map or leave out its locks; what NO_SYNC
    // puts at risk is the file after a crash of the system, which nobody opens again.
    unsafe { options.flags(flags) };
    // SAFETY: the directory is of this run, on a local file system, and nothing else touches the
    // files while the environment is open.
    unsafe { options.open(directory) }
}
