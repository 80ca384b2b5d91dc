//! Events of keys leave with the commit of their command (decision 090).
//!
//! A command records them in its progress, and a run that is repeated drops them there. Its commit
//! is announced before it is tried, and hands them over once it has its LSN. Steps of PANDO BEGIN
//! give them to the transaction, whose commit hands over those of all. What belongs to no commit is
//! told when the command has ended. What EXECs and scripts publish goes the same way.

use pandodb::nonblocking::Pending;
use pandodb::{Lsn, Wait};

use crate::connection::Connection;
use crate::connection::loop_data::Turn;
use crate::connection::running::Running;
use crate::context::Kind;
use crate::notifications::recorded::Recorded;
use crate::notifications::release::Announcement;

impl Connection {
    /// Announces the commit that is about to be tried, if it has events.
    #[inline]
    pub(super) fn announce(
        &mut self,
        turn: &Turn<'_>,
        running: &mut Running,
    ) -> Option<Announcement> {
        let is_end = running.command.kind == Kind::Commit;
        let kept = self.session.interactive.as_ref();
        let has_events = match kept {
            Some(kept) if is_end => !kept.events.is_empty(),
            // It is a step, and tells nobody.
            Some(_) => false,
            None => !self.progress().events.is_empty(),
        };
        match has_events {
            true => self.announced(turn, running),
            false => None,
        }
    }

    #[cold]
    fn announced(&mut self, turn: &Turn<'_>, running: &mut Running) -> Option<Announcement> {
        // One that an engine thread has carried out was announced before that.
        let before = running.announcement.take().map(|of| *of);
        before.or_else(|| {
            let newest = turn.data.as_ref()?.engine.db.newest_lsn();
            let notifications = &turn.shared.notifications;
            Some(match &self.session.interactive {
                Some(kept) => notifications.announce(newest, &kept.events),
                None => notifications.announce(newest, &self.progress().events),
            })
        })
    }

    /// Withdraws the announcement of a commit that has to wait, unless it may be carried out
    /// meanwhile.
    pub(super) fn withdraw(
        announcement: Option<Announcement>,
        running: &mut Running,
        pending: &Pending,
    ) {
        if pending.wait() == Wait::Job
            && let Some(announcement) = announcement
        {
            announcement.goes_elsewhere();
            running.announcement = Some(Box::new(announcement));
        }
    }

    /// Hands over the events of the commit `lsn`; `shown_from` is what it shows of others.
    pub(super) fn hand_over(
        &mut self,
        announcement: Option<Announcement>,
        (lsn, shown_from): (Option<Lsn>, Option<Lsn>),
    ) {
        let Some(announcement) = announcement else {
            return;
        };
        let events = match &mut self.session.interactive {
            Some(kept) => std::mem::take(&mut kept.events),
            None => std::mem::take(&mut self.progress().events),
        };
        match lsn {
            Some(lsn) => announcement.hand_over(lsn, events),
            None => {
                let after = shown_from.max(self.session.last_write);
                announcement.hand_over_read(events, after);
            }
        }
    }

    /// Tells events that the command which ends has left, or gives them to its transaction.
    #[cold]
    pub(super) fn settle_events(&mut self, turn: &Turn<'_>) {
        let mut events = std::mem::take(&mut self.progress().events);
        if let Some(interactive) = &mut self.session.interactive {
            let misses = events.take_misses();
            interactive.keep_events(&events);
            events = misses;
        }
        self.tell(turn, events);
    }

    fn tell(&mut self, turn: &Turn<'_>, events: Recorded) {
        if events.is_empty() {
            return;
        }
        let after = self.progress().shown_from().max(self.session.last_write);
        // While the store is being opened there are messages only, and nothing was committed.
        let newest = (turn.data.as_ref()).map_or(Lsn(0), |data| data.engine.db.newest_lsn());
        turn.shared.notifications.tell(events, newest, after);
    }
}
