//! Processor time of this process as the system counts it, including threads that have ended and
//! kernel workers.

use std::fs;

use pando_sync::time::Duration;

/// Unit of `/proc/self/stat`: a hundredth of a second on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// Returns user and system time since the process began; `None` if the system does not tell.
pub(crate) fn used() -> Option<Duration> {
    used_of(&fs::read_to_string("/proc/self/stat").ok()?)
}

fn used_of(stat: &str) -> Option<Duration> {
    // The name may contain blanks and parentheses; fields 3 and up follow its end.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(TICK * user + TICK * system)
}

#[cfg(test)]
mod tests {
    use super::{Duration, used, used_of};

    #[test]
    fn user_and_system_time_are_added() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 5 0 0 0 250 50 0 0 20 0 1 0 9";
        assert_eq!(used_of(stat), Some(Duration::from_secs(3)));
        assert_eq!(used_of("7 (x"), None);
        assert!(used().is_some());
    }
}
