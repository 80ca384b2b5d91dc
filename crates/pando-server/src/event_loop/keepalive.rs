//! Peers that are gone without a word: the system asks them now and then whether they are
//! there (decision 054).

use std::io;
use std::time::Duration;

use mio::net::TcpStream;
use rustix::net::sockopt;

/// Questions without an answer after which the peer is gone.
const QUESTIONS: u32 = 3;
/// The longest time that the system takes.
const SECONDS_MAX: u64 = 32_767;

/// Has the system ask after `seconds` of silence, then each third of that; 0: never.
///
/// # Errors
/// Those of the system; what it refused is as it was.
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
