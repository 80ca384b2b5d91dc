//! Replaces a file by another one, so that a crash leaves the old bytes or the new ones.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use pando_sync::atomic::{AtomicU64, Ordering};

/// Who may read a file that was not there before: it may have a password in it.
const MODE: u32 = 0o600;

/// Writes `bytes` to `path`, with the permissions that the file has, if it is there.
///
/// # Errors
/// The file is as it was, unless it was the flush of its folder that failed.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(path, |file| file.write_all(bytes))
}

/// As [`replace`]; `write` writes the bytes, and what it returns is returned.
///
/// # Errors
/// As [`replace`]; that of `write`.
pub(crate) fn replace_with<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<T, E>,
) -> Result<T, E> {
    // A link goes on to lead to the file.
    let path = match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::path::absolute(path)?,
        found => found?,
    };
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "it is a folder");
        return Err(error.into());
    };
    let temporary = folder.join(format!(
        ".{}.{}.{}.tmp",
        name.to_string_lossy(),
        std::process::id(),
        next_number()
    ));
    let written = write_whole(&temporary, &path, write);
    let renamed = written.and_then(|value| {
        fs::rename(&temporary, &path)?;
        Ok(value)
    });
    if renamed.is_err() {
        // The first error counts.
        let _ = fs::remove_file(&temporary);
        return renamed;
    }
    File::open(folder)?.sync_all()?;
    renamed
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only uniqueness matters.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn write_whole<T, E: From<io::Error>>(
    temporary: &Path,
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<T, E>,
) -> Result<T, E> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(temporary)?;
    match fs::metadata(path) {
        Ok(old) => file.set_permissions(old.permissions())?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let value = write(&mut file)?;
    file.sync_all()?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn permissions_and_links_stay_and_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("f"), directory.path().join("l"));
        replace(&file, b"one").unwrap();
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), MODE);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        replace(&link, b"two").unwrap();
        assert_eq!((fs::read(&file).unwrap(), mode()), (b"two".to_vec(), 0o640));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_error_leaves_the_file_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        assert!(replace(&directory.path().join("none").join("f"), b"x").is_err());
        assert!(replace(directory.path(), b"x").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
