//! A connection to a server: one request at a time, each with a deadline and a maximum reply
//! length.

use std::fmt;
use std::io;
use std::net::ToSocketAddrs;

use pando_resp::{Answer, Client, ClientOptions};
use pando_sync::time::Duration;

use crate::target::Target;

const OPTIONS: ClientOptions = ClientOptions {
    timeout: Duration::from_secs(3),
    // INFO with all histograms takes a hundredth of this.
    reply_bytes_max: 16 << 20,
};

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The server cannot be reached, or no longer; it may come back.
    Lost(String),
    /// The server refuses, or is not a PandoDB server: asking again does not help.
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

/// An open, authenticated connection.
pub(crate) struct Connection(Client);

impl Connection {
    /// Connects, and sends the password if there is one. Blocks for a few seconds at most.
    ///
    /// # Errors
    /// Nobody listens, or the password is refused.
    pub(crate) fn open(target: &Target) -> Result<Self, Trouble> {
        let addresses = (target.host.as_str(), target.port).to_socket_addrs();
        let addresses: Vec<_> = addresses.map_err(lost("looking up the host"))?.collect();
        let client = Client::connect(&addresses, OPTIONS).map_err(lost("connecting"))?;
        let mut connection = Self(client);
        if let Some(password) = &target.password {
            connection.ask(&["AUTH", password])?;
        }
        Ok(connection)
    }

    /// Returns the text of the server's answer to `words`. Blocks for a few seconds at most.
    ///
    /// # Errors
    /// The connection is lost; the reply is late, too long or malformed; or it is an error.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<String, Trouble> {
        let answer = self.0.call(words).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => Trouble::Refused(format!("no server of ours: {error}")),
            _ => lost("asking")(error),
        })?;
        match answer {
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
}
