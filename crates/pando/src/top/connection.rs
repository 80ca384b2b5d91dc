//! A connection to a server: one request at a time, each with a deadline and a longest reply.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use pando_resp::Answer;
use pando_sync::time::{Duration, Instant, now};

/// Time to connect, and for each reply.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest reply that is read: INFO with all histograms is a hundredth of it.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// Which server, and how to be let in.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) password: Option<String>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nobody is there, or no longer: it may come back.
    Lost(String),
    /// The server says no, or is none of ours: asking again does not help.
    Refused(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(text) | Self::Refused(text) => f.write_str(text),
        }
    }
}

fn lost(what: &'static str) -> impl FnOnce(io::Error) -> Trouble {
    move |error| Trouble::Lost(format!("{what}: {error}"))
}

/// An open connection that is let in.
pub(crate) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Connection {
    /// Connects, and gives the password if there is one. Blocks for some seconds at most.
    ///
    /// # Errors
    /// Nobody listens, or the password is refused.
    pub(crate) fn open(target: &Target) -> Result<Self, Trouble> {
        let addresses = (target.host.as_str(), target.port).to_socket_addrs();
        let mut last = None;
        for address in addresses.map_err(lost("looking up the host"))? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => return Self::enter(stream, target),
                Err(error) => last = Some(error),
            }
        }
        Err(match last {
            Some(error) => Trouble::Lost(format!("connecting: {error}")),
            None => Trouble::Lost("the host has no address".to_owned()),
        })
    }

    fn enter(stream: TcpStream, target: &Target) -> Result<Self, Trouble> {
        stream.set_nodelay(true).map_err(lost("connecting"))?;
        let mut connection = Self {
            stream,
            input: Vec::new(),
        };
        if let Some(password) = &target.password {
            connection.ask(&["AUTH", password])?;
        }
        Ok(connection)
    }

    /// The text that the server answers `words` with. Blocks for some seconds at most.
    ///
    /// # Errors
    /// The connection is gone, the reply is late, too long or none, or it is an error.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<String, Trouble> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        let deadline = now() + PATIENCE;
        self.stream
            .set_write_timeout(Some(PATIENCE))
            .and_then(|()| self.stream.write_all(request.as_bytes()))
            .map_err(lost("asking"))?;
        match self.answer(deadline)? {
            Answer::Simple(text) => Ok(text),
            Answer::Bulk(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Answer::Verbatim(text) => Ok(text),
            Answer::Error(text) => Err(match text.split(' ').next() {
                Some("NOAUTH") => {
                    let help = "the server wants a password: --password, or REDISCLI_AUTH";
                    Trouble::Refused(help.to_owned())
                }
                Some("LOADING") => Trouble::Lost(text),
                _ => Trouble::Refused(format!("the server says {text}")),
            }),
            other => Err(Trouble::Refused(format!("an answer of no use: {other:?}"))),
        }
    }

    fn answer(&mut self, deadline: Instant) -> Result<Answer, Trouble> {
        let mut chunk = vec![0; 64 << 10];
        loop {
            match Answer::parse(&self.input) {
                Ok(Some((answer, length))) => {
                    self.input.drain(..length);
                    return Ok(answer);
                }
                Ok(None) if self.input.len() > REPLY_BYTES_MAX => {
                    return Err(Trouble::Refused("the reply is too long".to_owned()));
                }
                Ok(None) => {}
                Err(error) => {
                    return Err(Trouble::Refused(format!("no server of ours: {error}")));
                }
            }
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return Err(Trouble::Lost("no reply in time".to_owned()));
            }
            self.stream
                .set_read_timeout(Some(left))
                .map_err(lost("waiting"))?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(Trouble::Lost("the server has hung up".to_owned())),
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(lost("reading")(error)),
            }
        }
    }
}
