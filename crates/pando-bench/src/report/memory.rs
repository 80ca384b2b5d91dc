//! Resident memory of this process.

use std::fs;

/// Forgets the largest resident memory until now, where the system allows that.
pub(super) fn forget_peak() {
    // If it is refused the peak of the next turn has that of the fill in it: too much, never too
    // little.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Returns the largest resident memory since [`forget_peak`], in bytes, if the system tells.
pub(super) fn peak() -> Option<u64> {
    peak_of(&fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = line?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::{peak, peak_of};

    #[test]
    fn the_peak_is_that_of_the_status() {
        let status = "Name:\tx\nVmPeak:\t  900 kB\nVmHWM:\t  12 kB\nVmRSS:\t 7 kB\n";
        assert_eq!(peak_of(status), Some(12 << 10));
        assert_eq!(peak_of("VmHWM:\t12"), None);
        assert!(peak().is_none_or(|bytes| bytes > 1 << 20));
    }
}
