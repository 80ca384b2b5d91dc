//! What a request may at most be. Every limit is a number here, nothing is implied by a type.

/// Longest line: an inline command, or a count.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Most arguments of one command.
pub const ARGUMENTS_MAX: usize = 1024 * 1024;

/// Most arguments of a command of a peer that has not authenticated.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;

/// Longest argument of a peer that has not authenticated.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 * 1024;

/// Longest argument that a Redis server takes by default.
pub const BULK_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Limits of the requests of one peer at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most arguments of one command.
    pub arguments_max: usize,
    /// Longest argument.
    pub bulk_bytes_max: usize,
    /// Longest argument that is held whole. The bytes of a longer one are taken out of the buffer
    /// as they arrive, by whoever calls the parser.
    pub whole_bytes_max: usize,
    /// Longest command as it is on the wire, without arguments that are not held; below 4 GiB.
    pub request_bytes_max: usize,
    /// The peer has not yet said who it is: the smaller limits apply, with their own messages.
    pub unauthenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            arguments_max: ARGUMENTS_MAX,
            bulk_bytes_max: BULK_BYTES_MAX,
            whole_bytes_max: BULK_BYTES_MAX,
            request_bytes_max: 1024 * 1024 * 1024,
            unauthenticated: false,
        }
    }
}
