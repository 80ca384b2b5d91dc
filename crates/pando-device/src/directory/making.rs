//! Makes directories whose names are durable in the directories above them.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Error, Result};

/// Makes the names in the directory `path` durable.
pub(super) fn sync_path(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// True if there is no way for this process to sync a directory that it only found.
fn is_out_of_reach(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Unsupported
    )
}

/// Makes `path` and its missing parents, each durable in the one above it before the next is made.
/// `sync` makes the names in a directory durable.
///
/// A directory that is found may have been made by a process that ended before its name was
/// durable, so that one is made durable again. Those above it were before it was made.
pub(super) fn make_durable(
    path: &Path,
    mut sync: impl FnMut(&Path) -> io::Result<()>,
) -> Result<()> {
    let fail = |error| Error::from_io("make", &path.to_string_lossy(), error);
    let mut missing: Vec<&Path> = path
        .ancestors()
        .take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists())
        .collect();
    missing.reverse();
    let found = missing.first().map_or(path, |first| parent_of(first));
    // Its name is in another directory if the path leads through a link.
    let found = fs::canonicalize(found).map_err(fail)?;
    if let Some(parent) = found.parent() {
        match sync(parent) {
            Err(error) if is_out_of_reach(&error) => {}
            synced => synced.map_err(fail)?,
        }
    }
    for made in missing {
        match fs::create_dir(made) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && made.is_dir() => {}
            result => result.map_err(fail)?,
        }
        sync(parent_of(made)).map_err(fail)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    /// Directories whose names a power cut leaves.
    #[derive(Default)]
    struct Durable(BTreeSet<PathBuf>);

    impl Durable {
        fn sync(&mut self, path: &Path) {
            for entry in fs::read_dir(path).unwrap() {
                self.0.insert(entry.unwrap().path());
            }
        }
    }

    /// A process ends in front of any sync, or that fails; the next one finds what it has made.
    #[test]
    fn what_another_process_has_made_is_made_durable() {
        for ends_at in 0..5 {
            let place = tempfile::tempdir().unwrap();
            let top = fs::canonicalize(place.path()).unwrap();
            let path = top.join("a/b/c");
            let mut durable = Durable::default();
            let mut syncs = 0;
            let first = make_durable(&path, |parent| {
                syncs += 1;
                if syncs > ends_at {
                    return Err(io::Error::other("the process ends"));
                }
                durable.sync(parent);
                Ok(())
            });
            assert_eq!(first.is_ok(), ends_at >= 4, "{ends_at}");
            make_durable(&path, |parent| {
                durable.sync(parent);
                Ok(())
            })
            .unwrap();
            for name in ["a", "a/b", "a/b/c"] {
                assert!(durable.0.contains(&top.join(name)), "{name}, {ends_at}");
            }
        }
    }

    #[test]
    fn a_directory_that_is_found_needs_no_rights_above_it() {
        let place = tempfile::tempdir().unwrap();
        let refuse = |_: &Path| Err(io::ErrorKind::PermissionDenied.into());
        make_durable(place.path(), refuse).unwrap();
        assert!(make_durable(&place.path().join("made"), refuse).is_err());
        let fail = |_: &Path| Err(io::Error::other("broken"));
        assert!(make_durable(place.path(), fail).is_err());
    }

    #[test]
    fn a_link_leads_to_the_directory_above_its_end() {
        let place = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(place.path()).unwrap();
        fs::create_dir_all(top.join("real/store")).unwrap();
        let link = top.join("link");
        std::os::unix::fs::symlink(top.join("real/store"), &link).unwrap();
        let mut synced = Vec::new();
        make_durable(&link, |parent| {
            synced.push(parent.to_owned());
            Ok(())
        })
        .unwrap();
        assert_eq!(synced, [top.join("real")]);
    }
}
