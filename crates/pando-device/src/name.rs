//! The names that files may have: the same for every back end, so that no name escapes its
//! directory.

use std::io;

use crate::device::{Create, OpenOptions};
use crate::error::{Error, Result};

/// Name of the file whose lock marks the directory as in use.
pub(crate) const LOCK: &str = "LOCK";
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

/// Like [`check`], for opening. Also refuses to make a file that is not opened for writing.
pub(crate) fn check_open(name: &str, options: OpenOptions) -> Result<()> {
    check("open", name)?;
    if options.create != Create::Never && !options.write {
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
    }
}
