//! What commands leave behind: commits of connections that are gone, and keys to be told.
//!
//! An engine thread empties tables, whether the client still waits for that or not; who keeps keys,
//! or waits for some, must learn of it all the same. And what a command has written is told in
//! steps if it is much.

use std::task::Waker;

use pandodb::nonblocking::{Outcome, Polled, ValidatedBatch};

use super::EventLoop;
use crate::connection::Connection;

impl EventLoop {
    /// Keeps the commit of a connection that is being closed, if one is under way.
    pub(super) fn keep_commit(&mut self, connection: &mut Connection) {
        let Some(mut running) = connection.running.take() else {
            return;
        };
        let batch = running.batch.take();
        let batch = batch.filter(|of| of.is_committing());
        if batch.is_some() && self.shared.channels.has_monitors() {
            connection.show(&self.shared, &mut running);
        }
        self.left_commits.extend(batch.map(|of| *of));
    }

    /// Tells everybody of those that are done.
    pub(super) fn end_left_commits(&mut self) {
        let Some(data) = self.data.as_mut().filter(|_| !self.left_commits.is_empty()) else {
            return;
        };
        let waker = Waker::from(self.reactor_wake.clone());
        let mut goes_on = |batch: &mut ValidatedBatch| {
            match batch.try_commit(&mut data.reactor) {
                Ok(Polled::Pending(pending)) => {
                    // A store that has failed has its error for everybody.
                    return data.reactor.park(pending, &waker).is_ok();
                }
                Ok(Polled::Ready(Outcome::Committed(_))) => {
                    if self.shared.tracking.any() {
                        self.shared.tracking.changed_all(&self.shared.channels);
                    }
                    if self.shared.waiters.any() {
                        self.shared.waiters.wake_all();
                    }
                }
                Ok(Polled::Ready(Outcome::Conflict { .. })) | Err(_) => {}
            }
            false
        };
        self.left_commits.retain_mut(&mut goes_on);
    }

    /// Tells the next keys of a command that has written many.
    pub(super) fn tell_left(&mut self) {
        if let Some(data) = &mut self.data {
            data.tell_left(&self.shared);
        }
    }
}
