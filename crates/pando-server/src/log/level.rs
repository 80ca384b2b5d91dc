//! The level of the server's log, and how it is changed.
//!
//! This library emits events to `tracing`. Whoever installs a subscriber turns them into lines, and
//! can change the level.

use std::fmt;

/// Lowest severity of events that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LogLevel {
    /// Nothing is logged.
    Off,
    /// Events that end the service, or a part of it.
    Error,
    /// Events that somebody should look at.
    Warn,
    /// Start, recovery, end, and rare events.
    #[default]
    Info,
    /// Also checkpoints, and connections that open and close.
    Debug,
}

impl LogLevel {
    const ALL: [Self; 5] = [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// Returns its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// Returns its name in `CONFIG GET loglevel`, where tools expect the names of Redis.
    pub fn redis_name(self) -> &'static str {
        match self {
            Self::Off => "nothing",
            Self::Error => "error",
            Self::Warn => "warning",
            Self::Info => "notice",
            Self::Debug => "debug",
        }
    }

    /// Returns the level with this name, ours or that of Redis.
    pub fn from_name(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("verbose") {
            return Some(Self::Debug);
        }
        Self::ALL.into_iter().find(|level| {
            [level.name(), level.redis_name()]
                .iter()
                .any(|known| known.eq_ignore_ascii_case(name))
        })
    }
}

/// Callback that changes the level of the log; supplied by the owner of the subscriber. It lives as
/// long as the process, as subscribers do.
#[derive(Clone, Copy)]
pub struct LogLevelSetter(pub &'static (dyn Fn(LogLevel) + Send + Sync));

impl fmt::Debug for LogLevelSetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogLevelSetter")
    }
}

#[cfg(test)]
mod tests {
    use super::LogLevel;

    #[test]
    fn every_level_is_known_by_both_its_names() {
        for level in LogLevel::ALL {
            assert_eq!(LogLevel::from_name(level.name()), Some(level));
            let shouted = level.redis_name().to_uppercase();
            assert_eq!(LogLevel::from_name(&shouted), Some(level));
        }
        assert_eq!(LogLevel::from_name("verbose"), Some(LogLevel::Debug));
        assert_eq!(LogLevel::from_name("loud"), None);
        assert!(LogLevel::Off < LogLevel::Error && LogLevel::Info < LogLevel::Debug);
    }
}
