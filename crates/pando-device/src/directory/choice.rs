//! The choice of the back end that serves the channels of a directory, and the reasons against the
//! others.
//!
//! The order is uring, libaio, pread. A caller that asks for one begins with it. A back end that
//! fails when the device is opened, or when a channel is made, is passed over, and the reason is
//! kept for reports. A caller that requires one back end gets an error instead.

use std::fmt;

use pando_sync::{Mutex, Rank};

/// How requests of a directory's channels reach the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// A ring of the kernel for each channel (io_uring).
    Uring,
    /// A context of the kernel's older interface for each channel; needs direct files.
    Libaio,
    /// Threads that read and write, shared by all channels.
    Pread,
}

impl Backend {
    /// All back ends, the best first.
    pub const ALL: [Self; 3] = [Self::Uring, Self::Libaio, Self::Pread];

    /// Returns the name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Libaio => "libaio",
            Self::Pread => "pread",
        }
    }

    /// Returns the back end called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Returns this back end and those that are tried after it.
    pub(super) fn and_next(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().skip_while(move |next| *next != self)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A back end that was tried before the one in use, and failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// The back end.
    pub backend: Backend,
    /// The reason, for people.
    pub reason: String,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {}: {}", self.backend, self.reason)
    }
}

/// The back end in use, and those that were passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendChoice {
    /// The back end that is tried first for new channels.
    pub used: Backend,
    /// Back ends in the order in which they were tried, also those that failed only for some
    /// channel.
    pub passed_over: Vec<PassedOver>,
    /// Other things that work less well than they could, with the reasons, for people.
    pub notes: Vec<String>,
}

/// The choice of a device, to which its channels may add.
#[derive(Debug)]
pub(crate) struct Notes(Mutex<BackendChoice>);

impl Notes {
    pub(super) fn new(used: Backend) -> Self {
        Self(Mutex::new(
            Rank::Leaf,
            BackendChoice {
                used,
                passed_over: Vec::new(),
                notes: Vec::new(),
            },
        ))
    }

    pub(super) fn used(&self) -> Backend {
        self.0.lock().used
    }

    pub(super) fn choice(&self) -> BackendChoice {
        self.0.lock().clone()
    }

    pub(super) fn set_used(&self, used: Backend) {
        self.0.lock().used = used;
    }

    /// Stores the reason why `backend` is not used. Only the first reason of each back end is kept.
    pub(super) fn pass_over(&self, backend: Backend, reason: String) {
        let mut choice = self.0.lock();
        if choice
            .passed_over
            .iter()
            .all(|past| past.backend != backend)
        {
            choice.passed_over.push(PassedOver { backend, reason });
        }
    }

    /// Adds a note, unless it is there already.
    pub(crate) fn add(&self, note: String) {
        let mut choice = self.0.lock();
        if !choice.notes.contains(&note) {
            choice.notes.push(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parsing the name of a back end returns that back end.
    #[test]
    fn names_are_read_back() {
        for backend in Backend::ALL {
            assert_eq!(Backend::from_name(backend.name()), Some(backend));
        }
        assert_eq!(Backend::from_name("io_uring"), None);
        let next: Vec<_> = Backend::Libaio.and_next().collect();
        assert_eq!(next, [Backend::Libaio, Backend::Pread]);
    }
}
