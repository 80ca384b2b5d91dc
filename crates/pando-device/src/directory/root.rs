//! A directory that is held open (decision 123): its names are looked up in it and not along its
//! path, so that it stays the same one if somebody renames it, and another one gets its path.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::system;
use crate::device::{Create, OpenOptions};
use crate::name;

/// A directory, and what is done to names in it. They have the form that `name` checks.
#[derive(Debug)]
pub(super) struct Root {
    directory: fs::File,
}

/// A file or directory in a directory.
#[derive(Debug)]
struct Listed {
    name: String,
    is_directory: bool,
}

fn c_string(name: &str) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Calls `system::open_at` until no signal interrupts it.
fn open_at(directory: &fs::File, name: &str, flags: libc::c_int) -> io::Result<fs::File> {
    let name = c_string(name)?;
    loop {
        match system::open_at(directory, &name, flags) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            opened => return opened,
        }
    }
}

/// Returns the files and directories of `directory` whose names a device can have made. Others are
/// not looked into: they are somebody else's (`lost+found`), and may be closed to this user.
fn entries(directory: &fs::File) -> io::Result<Vec<Listed>> {
    let again = open_at(directory, ".", libc::O_RDONLY | libc::O_DIRECTORY)?;
    let mut listed = Vec::new();
    for name in system::names(again)? {
        let Ok(name) = name.into_string() else {
            continue;
        };
        if !name::is_component(&name) {
            continue;
        }
        let kind = match open_at(directory, &name, libc::O_PATH | libc::O_NOFOLLOW) {
            Ok(entry) => entry.metadata()?.file_type(),
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if kind.is_file() || kind.is_dir() {
            listed.push(Listed {
                name,
                is_directory: kind.is_dir(),
            });
        }
    }
    Ok(listed)
}

impl Root {
    /// Opens the directory `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let directory = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY)
            .open(path)?;
        Ok(Self { directory })
    }

    /// Opens the directory itself once more.
    pub(super) fn reopen(&self) -> io::Result<fs::File> {
        open_at(&self.directory, ".", libc::O_RDONLY | libc::O_DIRECTORY)
    }

    /// Opens or makes the file `name` as `options` say, with `flags` of the system besides.
    pub(super) fn open_file(
        &self,
        name: &str,
        options: OpenOptions,
        flags: libc::c_int,
    ) -> io::Result<fs::File> {
        let access = match options.write {
            true => libc::O_RDWR,
            false => libc::O_RDONLY,
        };
        let create = match options.create {
            Create::Never => 0,
            Create::IfAbsent => libc::O_CREAT,
            Create::New => libc::O_CREAT | libc::O_EXCL,
        };
        open_at(&self.directory, name, access | create | flags)
    }

    /// Makes the directory `name` if it is absent.
    pub(super) fn make_directory(&self, name: &str) -> io::Result<()> {
        match system::make_directory_at(&self.directory, &c_string(name)?) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    /// Removes the file `name`.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        system::unlink_at(&self.directory, &c_string(name)?)
    }

    /// Gives the file `name` the name `to`, which may be that of another one.
    pub(super) fn rename(&self, name: &str, to: &str) -> io::Result<()> {
        system::rename_at(&self.directory, &c_string(name)?, &c_string(to)?)
    }

    /// Returns the names of all files, also of those that lie one directory deeper. A directory
    /// that is not the device's, and cannot be read, is passed over.
    pub(super) fn files(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for listed in entries(&self.directory)? {
            if !listed.is_directory {
                names.push(listed.name);
                continue;
            }
            let within = self.directory_in(&listed.name);
            let deeper = match within.and_then(|within| entries(&within)) {
                Err(_) if listed.name != name::LOG_DIRECTORY => continue,
                deeper => deeper?.into_iter(),
            };
            names.extend(
                deeper
                    .filter(|deeper| !deeper.is_directory)
                    .map(|deeper| format!("{}/{}", listed.name, deeper.name)),
            );
        }
        Ok(names)
    }

    /// Makes the names of the device's files durable, also of those that lie one directory deeper.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.directory.sync_all()?;
        match self.directory_in(name::LOG_DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            log => log?.sync_all(),
        }
    }

    fn directory_in(&self, name: &str) -> io::Result<fs::File> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        open_at(&self.directory, name, flags)
    }

    /// Returns how many bytes can still be written to its file system.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        system::free_bytes(&self.directory)
    }
}
