//! Limits of requests. Every limit is a number here; none is implied by a type.

/// Maximum length of a line: an inline command, or a count.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of arguments of one command.
pub const ARGUMENTS_MAX: usize = 1024 * 1024;

/// Maximum number of arguments of one command from a peer that has not authenticated.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;

/// Maximum length of an argument from a peer that has not authenticated.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 * 1024;

/// Maximum length of an argument that a Redis server accepts by default.
pub const BULK_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Limits of the requests of one peer at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of arguments of one command.
    pub arguments_max: usize,
    /// Maximum length of an argument, in bytes.
    pub bulk_bytes_max: usize,
    /// Maximum length of an argument that stays in the buffer, in bytes. The caller of the parser
    /// removes the bytes of a longer argument from the buffer as they arrive.
    pub whole_bytes_max: usize,
    /// Length of a command on the wire behind which its arguments are left out, and their bytes
    /// removed by [`Parser::skip`](crate::Parser::skip).
    pub kept_bytes_max: usize,
    /// Maximum length of a command on the wire, without the arguments that do not stay in the
    /// buffer; below 4 GiB.
    pub request_bytes_max: usize,
    /// The peer has not authenticated: the smaller limits apply, and have their own error messages.
    pub unauthenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            arguments_max: ARGUMENTS_MAX,
            bulk_bytes_max: BULK_BYTES_MAX,
            whole_bytes_max: BULK_BYTES_MAX,
            kept_bytes_max: usize::MAX,
            request_bytes_max: 1024 * 1024 * 1024,
            unauthenticated: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_those_of_redis() {
        assert_eq!(LINE_BYTES_MAX, 65_536);
        assert_eq!(ARGUMENTS_MAX, 1_048_576);
        assert_eq!(UNAUTHENTICATED_BULK_BYTES_MAX, 16_384);
        assert_eq!(BULK_BYTES_MAX, 536_870_912);
        assert_eq!(Limits::default().request_bytes_max, 1 << 30);
    }
}
