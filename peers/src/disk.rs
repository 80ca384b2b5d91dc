//! What this process has read from disk and written to it, as the system counts it: page faults of
//! a memory map and direct I/O included, hits of the page cache not.

use std::fs;

/// Bytes since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    /// What it caused to be read from storage.
    pub(crate) read_bytes: u64,
    /// What it caused to be written to storage.
    pub(crate) write_bytes: u64,
}

impl Disk {
    /// As of now; None where the system does not say.
    pub(crate) fn now() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/self/io").ok()?)
    }

    fn of(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line?.trim().parse().ok()
        };
        Some(Self {
            read_bytes: field("read_bytes:")?,
            write_bytes: field("write_bytes:")?,
        })
    }

    /// What has come since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Disk;

    /// Only bytes that reached the disk count, and a missing field is noticed.
    #[test]
    fn fields_are_told_apart() {
        let text = "rchar: 1\nread_bytes: 40\nwrite_bytes: 7\ncancelled_write_bytes: 3\n";
        let disk = Disk::of(text).unwrap();
        assert_eq!((disk.read_bytes, disk.write_bytes), (40, 7));
        assert!(Disk::of("rchar: 1\n").is_none());
    }
}
