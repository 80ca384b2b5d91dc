//! Why a command failed: a sentence for people and an exit code for scripts.

use std::io;
use std::process::ExitCode;

/// Exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Fine = 0,
    /// Wrong usage or configuration.
    Usage = 1,
    /// A directory or an address that another process uses.
    InUse = 2,
    /// Damage was found.
    Damage = 3,
    /// Reading or writing failed.
    Io = 4,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the process exits with.
    pub(crate) code: Code,
    /// A sentence for people.
    pub(crate) text: String,
}

impl Failure {
    /// Makes a failure that ends the process with `code`.
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    /// Makes the failure of a command that found damage.
    pub(crate) fn damage(text: impl Into<String>) -> Self {
        Self::new(Code::Damage, text)
    }

    /// Makes the failure of a command that could not read or write.
    pub(crate) fn io(text: impl Into<String>) -> Self {
        Self::new(Code::Io, text)
    }

    /// Makes the failure of a command that was called in the wrong way.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(Code::Usage, text)
    }
}

impl From<pandodb::Error> for Failure {
    fn from(error: pandodb::Error) -> Self {
        let code = match &error {
            error if error.is_in_use() => Code::InUse,
            error if error.is_corruption() => Code::Damage,
            pandodb::Error::Version { .. } => Code::Usage,
            pandodb::Error::InvalidOption { option, what } => {
                let flag = option.replace('_', "-").replace(", ", ", --");
                return Self::usage(format!("--{flag}: {what}"));
            }
            _ => Code::Io,
        };
        Self::new(code, error.to_string())
    }
}

impl From<pando_server::Error> for Failure {
    fn from(error: pando_server::Error) -> Self {
        match error {
            pando_server::Error::Engine(error) => error.into(),
            pando_server::Error::Listen { address, source } => {
                let (code, advice) = match source.kind() {
                    io::ErrorKind::AddrInUse => (
                        Code::InUse,
                        "another process listens there: stop it, or choose another port with \
                         --listen or --metrics-listen ADDR:PORT",
                    ),
                    io::ErrorKind::AddrNotAvailable => (
                        Code::Usage,
                        "the address is not one of this machine: choose another with \
                         --listen or --metrics-listen ADDR:PORT",
                    ),
                    io::ErrorKind::PermissionDenied => (
                        Code::Usage,
                        "ports below 1024 need a privilege: choose another with --listen ADDR:PORT",
                    ),
                    _ => (Code::Io, "choose another address with --listen ADDR:PORT"),
                };
                Self::new(
                    code,
                    format!("cannot listen on {address}: {source}; {advice}"),
                )
            }
            pando_server::Error::Socket { path, source } => {
                let (code, advice) = match source.kind() {
                    io::ErrorKind::AddrInUse => (
                        Code::InUse,
                        "another process listens there: stop it, or choose",
                    ),
                    _ => (Code::Usage, "choose"),
                };
                let path = path.display();
                Self::new(
                    code,
                    format!(
                        "cannot listen at {path}: {source}; {advice} another path with --unix-socket"
                    ),
                )
            }
            error @ pando_server::Error::Parameter { .. } => Self::usage(error.to_string()),
            other => Self::new(Code::Io, other.to_string()),
        }
    }
}

impl From<pando_bench::Error> for Failure {
    fn from(error: pando_bench::Error) -> Self {
        match error {
            pando_bench::Error::Engine(error) => error.into(),
            pando_bench::Error::Server(error) => error.into(),
            pando_bench::Error::Device { ref source, .. } if is_in_use(source) => {
                Self::new(Code::InUse, error.to_string())
            }
            pando_bench::Error::Option { .. } => Self::usage(error.to_string()),
            pando_bench::Error::Wrong { .. } => Self::new(Code::Damage, error.to_string()),
            other => Self::new(Code::Io, other.to_string()),
        }
    }
}

fn is_in_use(error: &pandodb::device::Error) -> bool {
    matches!(error, pandodb::device::Error::InUse { .. })
}

#[cfg(test)]
mod tests {
    use super::{Code, Failure};

    #[test]
    fn a_back_end_that_is_insisted_on_and_missing_is_a_matter_of_usage() {
        let failure = Failure::from(pandodb::Error::InvalidOption {
            option: "io_backend",
            what: "uring cannot be had: no".to_owned(),
        });
        assert_eq!(failure.text, "--io-backend: uring cannot be had: no");
        assert_eq!(failure.code as i32, Code::Usage as i32);
    }
}
