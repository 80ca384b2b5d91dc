//! Which back end serves the channels of a directory, and why not another one.
//!
//! The order is uring, libaio, pread; whoever asks for one begins with it. What fails when the
//! device is opened, or when a channel is made, is passed over, and the reason is kept for those
//! who report. Whoever insists on one gets an error instead.

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
    /// All of them, the best first.
    pub const ALL: [Self; 3] = [Self::Uring, Self::Libaio, Self::Pread];

    /// As in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Libaio => "libaio",
            Self::Pread => "pread",
        }
    }

    /// The back end called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// This one and those that follow when it cannot be had.
    pub(super) fn and_next(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().skip_while(move |next| *next != self)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A back end that was wanted first and does not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// Which.
    pub backend: Backend,
    /// Why, for people.
    pub reason: String,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {}: {}", self.backend, self.reason)
    }
}

/// What serves, and what was passed over for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendChoice {
    /// What new channels are tried with first.
    pub used: Backend,
    /// In the order of their trial; a channel that had to do with less is here, too.
    pub passed_over: Vec<PassedOver>,
    /// What else works with less than it could, and why, for people.
    pub notes: Vec<String>,
}

/// The choice of a device, which its channels may have to add to.
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

    /// Keeps the reason why `backend` does not serve; the first one of each.
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

    /// Keeps a note, once.
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
