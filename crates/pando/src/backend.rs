//! The names that `--io-backend` accepts.

use pandodb::IoBackend;

use crate::failure::Failure;

/// Returns the back end called `text`; with a `!` after the name, opening fails rather than falling
/// back to another one. `memory` and `null` are for benchmarks.
pub(crate) fn choose(text: &str, benchmark: bool) -> Result<IoBackend, Failure> {
    let found = IoBackend::from_name(text);
    if let Some(backend) = found.filter(|backend| benchmark || backend.has_files()) {
        return Ok(backend);
    }
    let more = if benchmark { ", memory, null" } else { "" };
    Err(Failure::usage(format!(
        "--io-backend '{text}': there are auto, uring, libaio, pread{more}, each also with a ! \
         behind it"
    )))
}

#[cfg(test)]
mod tests {
    use super::choose;
    use pandodb::IoBackend;

    /// Back ends without files are refused except for benchmarks.
    #[test]
    fn only_benchmarks_have_no_files() {
        assert_eq!(choose("auto!", false).unwrap(), IoBackend::Auto);
        assert_eq!(choose("uring", false).unwrap(), IoBackend::Uring);
        assert_eq!(choose("uring!", false).unwrap(), IoBackend::UringOnly);
        assert!(choose("memory", false).is_err());
        assert!(choose("null", false).is_err());
        assert_eq!(choose("memory", true).unwrap(), IoBackend::Memory);
        assert!(choose("disk", true).unwrap_err().text.contains("null"));
    }
}
