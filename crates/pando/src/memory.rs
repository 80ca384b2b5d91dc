//! How much memory there is: that of the machine, or less if the cgroup of the process has a limit.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::quantity::parse_size;

/// Assumed number of bytes when the system does not tell.
const UNKNOWN: u64 = 1 << 30;

/// Returns the number of bytes that this process may use.
pub(crate) fn available() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = limit(Path::new("/sys/fs/cgroup"), &groups);
    match (machine, limit) {
        (Some(machine), Some(limit)) => machine.min(limit),
        (one, other) => one.or(other).unwrap_or(UNKNOWN),
    }
}

/// Default memory budget of a tool, if the machine has that much. A store that cannot be opened
/// with it needs `--max-memory`.
const TOOL_MEMORY: u64 = 1 << 30;

/// Returns the memory budget of a tool that opens a store: what `--max-memory` says, or else
/// [`TOOL_MEMORY`], but no more than a `share`th of what there is.
pub(crate) fn tool_budget(flag: Option<&str>, share: u64) -> Result<u64, Failure> {
    match flag {
        Some(text) => {
            parse_size(text).map_err(|what| Failure::usage(format!("--max-memory: {what}")))
        }
        None => Ok(TOOL_MEMORY.min(available() / share)),
    }
}

/// Returns `MemTotal` of `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Files with limits of a group of version 2: above the first it gets no more, and above the
/// second it is slowed down until it has given back what is too much (`MemoryHigh=` of systemd).
const LIMITS: [&str; 2] = ["memory.max", "memory.high"];
/// The same, version 1.
const LIMITS_1: [&str; 1] = ["memory.limit_in_bytes"];

/// Returns the lowest limit of the groups in `/proc/self/cgroup` and of all their ancestors, for
/// both versions.
fn limit(root: &Path, groups: &str) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (base, files) = match controllers {
            "" => (root.to_owned(), &LIMITS[..]),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), &LIMITS_1[..])
            }
            _ => continue,
        };
        let mut folder: PathBuf = base.join(group.trim_start_matches('/'));
        loop {
            for file in files {
                let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
                // "max" is not a number, and means no limit.
                if let Ok(bytes) = text.trim().parse::<u64>() {
                    least = Some(least.map_or(bytes, |least: u64| least.min(bytes)));
                }
            }
            if folder == base || !folder.pop() {
                break;
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::{available, limit, total};
    use std::fs;

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("a/b");
        fs::create_dir_all(&group).unwrap();
        assert_eq!(limit(root.path(), "0::/a/b\n"), None);
        fs::write(group.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("a/memory.max"), "1048576\n").unwrap();
        fs::write(root.path().join("memory.max"), "2097152\n").unwrap();
        assert_eq!(limit(root.path(), "0::/a/b\n"), Some(1 << 20));
        fs::write(root.path().join("a/memory.high"), "524288\n").unwrap();
        assert_eq!(limit(root.path(), "0::/a/b\n"), Some(1 << 19));
        fs::create_dir_all(root.path().join("memory/x")).unwrap();
        fs::write(root.path().join("memory/x/memory.limit_in_bytes"), "4096").unwrap();
        assert_eq!(limit(root.path(), "3:cpu,memory:/x\n"), Some(4096));
    }

    #[test]
    fn the_machine_says_what_it_has() {
        assert_eq!(
            total("MemTotal:       1024 kB\nMemFree: 1 kB\n"),
            Some(1 << 20)
        );
        assert!(available() > 0);
    }
}
