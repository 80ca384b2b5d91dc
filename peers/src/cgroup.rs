//! A group that holds the process of an engine to a total memory, page cache included.
//!
//! Version 2 (`memory.max`) or version 1 (`memory.limit_in_bytes`) of control groups, told by the
//! files of the parent. The parent is the one that was named, or the own group of this process in
//! version 2 if it may divide memory among children: a group that belongs to somebody else is
//! never touched unasked. A group is removed with its handle, after its process has ended.

use std::fs;
use std::path::{Path, PathBuf};

use pando_bench::{Error, Result};
use pando_sync::thread;
use pando_sync::time::Duration;

use crate::options::{failed, refused};

const V2_ROOT: &str = "/sys/fs/cgroup";
/// Program, stacks and what the measuring itself takes, above the budget of the engine.
pub(crate) const ALLOWANCE_BYTES: u64 = 64 << 20;
/// The kernel needs a moment after the last process has ended.
const REMOVALS: u32 = 50;
const REMOVAL_WAIT: Duration = Duration::from_millis(20);

/// A group with a limit.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

/// How a parent limits the memory of its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Why a parent cannot limit its children, if it cannot.
fn version_of(parent: &Path) -> std::result::Result<Version, String> {
    let shown = parent.display();
    match fs::read_to_string(parent.join("cgroup.subtree_control")) {
        Ok(controllers) if controllers.split_whitespace().any(|name| name == "memory") => {
            Ok(Version::Two)
        }
        Ok(_) => Err(format!("{shown} does not divide memory among its children")),
        Err(_) if parent.join("memory.limit_in_bytes").exists() => Ok(Version::One),
        Err(_) => Err(format!("{shown} is no control group")),
    }
}

/// The own group in version 2, of the text of `/proc/self/cgroup`.
fn own_group(text: &str) -> Option<PathBuf> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(V2_ROOT).join(path))
}

/// The group to make others in.
///
/// # Errors
/// Why there is none.
pub(crate) fn parent(named: Option<&Path>) -> std::result::Result<PathBuf, String> {
    let parent = match named {
        Some(named) => named.to_owned(),
        None => {
            let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            own_group(&text).ok_or("there are no control groups of version 2")?
        }
    };
    version_of(&parent).map(|_| parent).map_err(|why| {
        let hint = "--cgroup names a group that may be used";
        format!("{why}; {hint}")
    })
}

impl Cgroup {
    /// Makes a group for the engine `name` of this run that may use `memory_max` bytes.
    pub(crate) fn new(parent: &Path, name: &str, memory_max: u64) -> Result<Self> {
        let version = version_of(parent).map_err(|why| refused("cgroup", why))?;
        let path = parent.join(format!("pando-peers-{}-{name}", std::process::id()));
        fs::create_dir(&path).map_err(failed(format!("making {}", path.display())))?;
        let group = Self { path };
        match version {
            Version::Two => {
                group.write("memory.max", memory_max)?;
                // Without swap the file is not there, and nothing has to be said.
                let _ = group.write("memory.swap.max", 0);
            }
            Version::One => group.write("memory.limit_in_bytes", memory_max)?,
        }
        Ok(group)
    }

    fn write(&self, file: &str, value: u64) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value.to_string()).map_err(failed(format!("writing {}", path.display())))
    }

    /// Directory of the group, which is removed with it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            if fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            thread::sleep(REMOVAL_WAIT);
        }
        eprintln!("peers: {} could not be removed", self.path.display());
    }
}

/// Moves this process into a group.
pub(crate) fn join(group: &Path) -> Result<()> {
    let path = group.join("cgroup.procs");
    let pid = std::process::id().to_string();
    fs::write(&path, pid).map_err(|source| Error::Io {
        during: format!("joining {}", group.display()),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::{Cgroup, Version, own_group, parent, version_of};
    use std::fs;
    use std::path::Path;

    #[test]
    fn versions_are_told_by_the_files_of_the_parent() {
        let dir = tempfile::tempdir().unwrap();
        assert!(version_of(dir.path()).is_err());
        fs::write(dir.path().join("memory.limit_in_bytes"), "0").unwrap();
        assert_eq!(version_of(dir.path()), Ok(Version::One));
        let control = dir.path().join("cgroup.subtree_control");
        fs::write(&control, "cpu memory pids\n").unwrap();
        assert_eq!(version_of(dir.path()), Ok(Version::Two));
        fs::write(&control, "cpu pids\n").unwrap();
        let why = parent(Some(dir.path())).unwrap_err();
        assert!(why.contains("does not divide memory"), "{why}");
        assert!(why.contains("--cgroup"), "{why}");
    }

    #[test]
    fn the_own_group_is_that_of_version_2() {
        let text = "4:memory:/a\n0::/user.slice/x\n";
        assert_eq!(
            own_group(text).unwrap(),
            Path::new("/sys/fs/cgroup/user.slice/x")
        );
        assert!(own_group("4:memory:/a\n").is_none());
    }

    #[test]
    fn a_group_gets_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.subtree_control"), "memory").unwrap();
        let group = Cgroup::new(dir.path(), "lmdb", 1 << 28).unwrap();
        let limit = fs::read_to_string(group.path().join("memory.max")).unwrap();
        assert_eq!(limit, "268435456");
        super::join(group.path()).unwrap();
        let pid = fs::read_to_string(group.path().join("cgroup.procs")).unwrap();
        assert_eq!(pid, std::process::id().to_string());
        // The kernel removes the files of a real group together with the group.
        fs::remove_dir_all(group.path()).unwrap();
        drop(group);
    }
}
