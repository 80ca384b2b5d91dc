//! Detection of peers that disappeared without a word: the system probes them after a silence
//! (decision 054).

use std::io;
use std::time::Duration;

use mio::net::TcpStream;
use rustix::net::sockopt;

/// Number of unanswered probes after which the peer counts as gone.
const QUESTIONS: u32 = 3;
/// The longest interval that the system accepts, in seconds.
const SECONDS_MAX: u64 = 32_767;

/// Has the system probe the peer after `seconds` of silence, and then at intervals of a third of
/// that; 0 turns this off.
///
/// # Errors
/// Those of the system; an option that it refused stays unchanged.
pub(crate) fn keep_alive(stream: &TcpStream, seconds: u64) -> io::Result<()> {
    if seconds == 0 {
        return Ok(());
    }
    let seconds = seconds.min(SECONDS_MAX);
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(seconds))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs((seconds / 3).max(1)))?;
    sockopt::set_tcp_keepcnt(stream, QUESTIONS)?;
    Ok(())
}
