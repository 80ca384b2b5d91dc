//! The server that a command talks to.

use std::fmt;

use crate::command_line::TargetArgs;

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
}
