//! The server that a command talks to.

use std::net::ToSocketAddrs as _;
use std::{fmt, io};

use pando_resp::{Answer, Client, ClientOptions};

use crate::command_line::TargetArgs;
use crate::failure::Failure;

/// The server's address, and the password.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Name or address; an IPv6 address has no brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `None` if no AUTH is to be sent.
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

impl Target {
    /// Returns the one that these flags name; the password may be in the environment.
    pub(crate) fn of(flags: &TargetArgs) -> Self {
        let from_environment = || std::env::var("REDISCLI_AUTH").ok();
        let password = flags.password.clone().or_else(from_environment);
        Self {
            host: flags.host.clone(),
            port: flags.port,
            password: password.filter(|word| !word.is_empty()),
        }
    }

    /// Connects to the server, which takes the password.
    pub(crate) fn connect(&self, options: ClientOptions) -> Result<Client, Failure> {
        let lost = |error: io::Error| Failure::io(format!("{self}: {error}"));
        let addresses = (self.host.as_str(), self.port).to_socket_addrs();
        let addresses: Vec<_> = addresses.map_err(lost)?.collect();
        let mut client = Client::connect(&addresses, options).map_err(lost)?;
        if let Some(password) = &self.password
            && let Answer::Error(text) = client.call(&["AUTH", password]).map_err(lost)?
        {
            return Err(Failure::usage(format!("{self}: {text}")));
        }
        if let Answer::Error(text) = client.call(&["PING"]).map_err(lost)? {
            return Err(Failure::usage(format!("{self}: {text}")));
        }
        Ok(client)
    }
}
