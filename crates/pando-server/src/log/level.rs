//! How much of what happens is written to the log of the server, and how that is changed.
//!
//! This library tells `tracing` what happens; lines are made of it by whoever set up a subscriber,
//! which is also who can change its level.

use std::fmt;

/// From which importance on events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LogLevel {
    /// Nothing is written.
    Off,
    /// What ends the service, or part of it.
    Error,
    /// What somebody should look at.
    Warn,
    /// Start, recovery, end, and what is rare.
    #[default]
    Info,
    /// Checkpoints, connections that come and go.
    Debug,
}

impl LogLevel {
    const ALL: [Self; 5] = [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// Its name in `CONFIG GET loglevel`, where tools know those of Redis.
    pub fn redis_name(self) -> &'static str {
        match self {
            Self::Off => "nothing",
            Self::Error => "error",
            Self::Warn => "warning",
            Self::Info => "notice",
            Self::Debug => "debug",
        }
    }

    /// The level of a name, ours or that of Redis.
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

/// Who is told of another level: the one who set up the subscriber. It lives as long as the
/// process, as subscribers do.
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
