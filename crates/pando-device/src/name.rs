//! The names that files may have: the same for every back end, so that no name escapes its
//! directory.

use std::io;

use crate::device::{Create, OpenOptions};
use crate::error::{Error, Result};

/// Name of the file whose lock marks the directory as in use.
pub(crate) const LOCK: &str = "LOCK";
/// The one directory that a device makes in its own. All others are somebody else's.
pub(crate) const LOG_DIRECTORY: &str = "log";
/// Maximum length of a component.
const COMPONENT_BYTES_MAX: usize = 200;

pub(crate) fn is_component(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= COMPONENT_BYTES_MAX
        && !text.starts_with('.')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// Refuses names that are not one or two plain components.
pub(crate) fn check(operation: &'static str, name: &str) -> Result<()> {
    let valid = match name.split_once('/') {
        None => is_component(name) && name != LOCK,
        Some((directory, file)) => is_component(directory) && is_component(file),
    };
    if valid {
        Ok(())
    } else {
        Err(Error::from_kind(
            operation,
            name,
            io::ErrorKind::InvalidInput,
        ))
    }
}

/// Like [`check`], for both names of a file that stays in its directory.
pub(crate) fn check_rename(name: &str, to: &str) -> Result<()> {
    check("rename", name)?;
    check("rename", to)?;
    let directory = |name: &str| name.split_once('/').map(|(first, _)| first.to_owned());
    match directory(name) == directory(to) {
        true => Ok(()),
        false => Err(Error::from_kind("rename", to, io::ErrorKind::InvalidInput)),
    }
}

/// Like [`check`], for opening. Also refuses to make a file that is not opened for writing, or in a
/// directory that is not looked for later.
pub(crate) fn check_open(name: &str, options: OpenOptions) -> Result<()> {
    check("open", name)?;
    let is_elsewhere = name
        .split_once('/')
        .is_some_and(|(directory, _)| directory != LOG_DIRECTORY);
    if options.create != Create::Never && (!options.write || is_elsewhere) {
        return Err(Error::from_kind(
            "create",
            name,
            io::ErrorKind::InvalidInput,
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for good in ["data", "log/0000000001", "a.b-c_d", "log/LOCK"] {
            assert!(check("open", good).is_ok(), "{good}");
        }
        for bad in [
            "", ".", "..", "../x", "/etc", "a/", "/a", "a/b/c", "a/..", "LOCK", "a b", "a\0",
        ] {
            assert!(check("open", bad).is_err(), "{bad:?}");
        }
        let create = OpenOptions::create(Create::IfAbsent);
        assert!(check_open("log/1", create).is_ok());
        assert!(check_open("other/1", OpenOptions::read()).is_ok());
        assert!(check_open("other/1", create).is_err());
    }
}
