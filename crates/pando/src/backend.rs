//! `--io-backend`: what is asked for, and what this version makes of it.

use pandodb::IoBackend;

use crate::failure::Failure;

/// Ways to the disk that are planned and not there.
const PLANNED: [&str; 2] = ["uring", "libaio"];

/// A chosen way to the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Backend {
    pub(crate) chosen: IoBackend,
    /// Why it is not what was asked for, if it is not.
    pub(crate) note: Option<String>,
}

/// The back end of a name; a `!` behind it means to fail rather than to take another one.
/// `memory` and `null` are for benchmarks.
pub(crate) fn choose(text: &str, benchmark: bool) -> Result<Backend, Failure> {
    let (name, strict) = match text.strip_suffix('!') {
        Some(name) => (name, true),
        None => (text, false),
    };
    let fine = |chosen| Ok(Backend { chosen, note: None });
    match name {
        "auto" => fine(IoBackend::Auto),
        "pread" => fine(IoBackend::Pread),
        "memory" if benchmark => fine(IoBackend::Memory),
        "null" if benchmark => Err(Failure::usage(
            "--io-backend null is not there in this version; memory does no I/O either",
        )),
        _ if PLANNED.contains(&name) && strict => Err(Failure::usage(format!(
            "--io-backend {name}! cannot be had: this version reads and writes with pread only; \
             '{name}' without the ! takes that"
        ))),
        _ if PLANNED.contains(&name) => Ok(Backend {
            chosen: IoBackend::Pread,
            note: Some(format!(
                "{name} is not there in this version, so pread serves"
            )),
        }),
        _ => {
            let more = if benchmark { ", memory, null" } else { "" };
            Err(Failure::usage(format!(
                "--io-backend '{text}': there are auto, uring, libaio, pread{more}, each also with \
                 a ! behind it"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::choose;
    use pandodb::IoBackend;

    #[test]
    fn what_is_not_there_falls_back_unless_forbidden() {
        assert_eq!(choose("auto!", false).unwrap().chosen, IoBackend::Auto);
        assert_eq!(choose("pread", false).unwrap().note, None);
        let fallen = choose("uring", false).unwrap();
        assert_eq!(fallen.chosen, IoBackend::Pread);
        assert!(fallen.note.unwrap().contains("uring is not there"));
        assert!(choose("uring!", false).is_err());
        assert!(choose("memory", false).is_err());
        assert_eq!(choose("memory", true).unwrap().chosen, IoBackend::Memory);
        assert!(choose("disk", true).is_err());
    }
}
