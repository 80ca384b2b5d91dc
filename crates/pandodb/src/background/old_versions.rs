//! Care for old versions: opens generations and frees those that no snapshot needs, makes room for
//! commits by ending the oldest snapshots, and turns the mode off when nobody reads at a snapshot
//! any longer (decision 067).

use pando_format::Lsn;
use pando_stats::Ticker;
use pando_sync::thread;
use pando_sync::time::{self, Duration};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::kept::cuts::SettleFor;

/// How long the maintenance thread sleeps at most while the mode is on.
pub(crate) const TURN: Duration = Duration::from_millis(100);
/// How long the oldest snapshot must have been the oldest before it is ended for lack of room:
/// shorter ones end by themselves, transactions above all.
const PATIENCE: Duration = Duration::from_millis(10);
/// How long the maintenance thread sleeps meanwhile.
const PAUSE: Duration = Duration::from_millis(1);
/// Number of turns without a snapshot after which the mode is turned off.
const IDLE_TURNS: u32 = 10;

/// What the maintenance thread remembers of snapshots from turn to turn.
#[derive(Debug, Default)]
pub(crate) struct VersionCare {
    /// When the last turn was.
    last: Option<time::Instant>,
    /// Number of turns in a row in which there was no snapshot.
    idle_turns: u32,
    /// The horizon at the last turn.
    horizon: Lsn,
    /// The horizon when room was short, and when that was seen first.
    short: Option<(Lsn, time::Instant)>,
}

impl VersionCare {
    /// Returns whether another turn is due.
    fn is_due(&mut self) -> bool {
        let now = time::now();
        let is_due = self
            .last
            .is_none_or(|last| now.duration_since(last) >= TURN);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }

    /// Returns whether room that is short now may come by itself: the horizon has moved a short
    /// time ago.
    fn may_come(&mut self, horizon: Lsn) -> bool {
        let now = time::now();
        match self.short {
            Some((known, since)) if known == horizon => now.duration_since(since) < PATIENCE,
            _ => {
                self.short = Some((horizon, now));
                true
            }
        }
    }
}

impl Engine {
    /// Makes commits save what snapshots read, from now on. Closes the gate for a moment. Blocks.
    ///
    /// # Errors
    /// [`Error::Full`] when no frame for versions is free.
    pub(crate) fn turn_snapshots_on(&self) -> Result<()> {
        let old = &self.old_versions;
        let closed = self.store.close_gate();
        if old.snapshots.is_on() {
            return Ok(());
        }
        if !old.versions.has_generation() && !old.versions.open_generation(&closed) {
            let what = "there is no memory for old versions; end snapshots".into();
            return Err(Error::Full { what });
        }
        assert!(
            old.versions.has_generation(),
            "there is no place for what snapshots read"
        );
        old.snapshots.turn_on(&closed);
        drop(closed);
        // It may sleep for good while the mode is off.
        self.store.registry.work.notify_all();
        Ok(())
    }

    /// Does what is due. Never blocks for long.
    pub(crate) fn care_for_versions(&self, care: &mut VersionCare) {
        let old = &self.old_versions;
        if !old.snapshots.is_on() {
            if old.take_wanted() > 0 {
                old.waiters.notify_all();
            }
            return;
        }
        if old.versions.wants_generation() {
            self.open_generation();
        }
        self.drop_unneeded();
        let wanted = old.take_wanted();
        if wanted > 0 {
            self.make_version_room(wanted, care);
            old.waiters.notify_all();
        }
        if !care.is_due() {
            return;
        }
        care.idle_turns = match old.snapshots.is_needed() {
            true => 0,
            false => care.idle_turns + 1,
        };
        if care.idle_turns >= IDLE_TURNS {
            care.idle_turns = 0;
            self.turn_snapshots_off();
        }
        let horizon = self.horizon();
        let versions = &old.versions;
        if 2 * versions.used() > versions.frames() && self.may_settle(horizon) {
            self.settle_soon(SettleFor::Room);
        } else if self
            .kept
            .has_young_older_than(self.options.settle_snapshots_after)
        {
            self.settle_soon(SettleFor::Age);
        }
        if horizon > care.horizon && self.store.registry.keeps_rows() {
            // Snapshots tell when their owners end them, and rows are noted as kept a moment after
            // they were looked at.
            self.store.registry.want();
        }
        // Who begins may show an old bound for a moment; its snapshot is not older than all that
        // was committed before it took its slot.
        care.horizon = care.horizon.max(horizon);
    }

    /// Opens a generation, unless the newest is empty.
    fn open_generation(&self) {
        let versions = &self.old_versions.versions;
        if versions.is_newest_empty() {
            return;
        }
        let closed = self.store.pool.gate().close();
        // If none can be opened, the newest grows on.
        let _opened = versions.open_generation(&closed);
    }

    fn drop_unneeded(&self) {
        let old = &self.old_versions;
        if old.versions.drop_unneeded(self.horizon()) {
            old.waiters.notify_all();
        }
    }

    /// Returns whether the oldest snapshot, which is that of `horizon`, can go on on disk.
    pub(crate) fn may_settle(&self, horizon: Lsn) -> bool {
        self.options.settle_snapshots_after < Duration::MAX
            && !self.store.life.is_checkpoint_stalled()
            && self.store.check_poison().is_ok()
            && self.kept.may_settle(horizon, self.settling_age())
    }

    /// Has snapshots settled on a checkpoint, soon.
    fn settle_soon(&self, settle_for: SettleFor) {
        if self.kept.want_settling(settle_for) {
            self.checkpoint.request();
        }
    }

    /// Ends the oldest snapshots until `frames` frames can be reserved, once others have given back
    /// what they have reserved now.
    fn make_version_room(&self, frames: u64, care: &mut VersionCare) {
        let old = &self.old_versions;
        while old.snapshots.is_on() && !old.versions.has_room_besides_reserved(frames) {
            if self.may_settle(self.horizon()) {
                // The oldest snapshot goes on on disk; meanwhile commits wait.
                // They ask anew: beside fewer versions, a batch needs fewer frames.
                self.settle_soon(SettleFor::Room);
                return thread::park_timeout(PAUSE);
            }
            let fits = old.versions.fits(frames);
            if fits && care.may_come(self.horizon()) {
                // What is saved from now on goes into another generation, so that this one goes
                // once the snapshots of now have ended.
                self.open_generation();
                self.drop_unneeded();
                old.want(frames);
                return thread::park_timeout(PAUSE);
            }
            let Some(lsn) = old.snapshots.end_oldest() else {
                if old.snapshots.is_needed() && fits {
                    // Others begin at this moment, and may be ended in the next turn.
                    return;
                }
                self.turn_snapshots_off();
                return;
            };
            tracing::warn!(%lsn, "a snapshot was ended: there is no memory for what it reads");
            self.store.statistics.tick(Ticker::SnapshotsEnded, 1);
            if fits {
                self.open_generation();
                self.drop_unneeded();
            }
        }
    }

    /// Turns the mode off and frees all versions, unless somebody reads at a snapshot.
    fn turn_snapshots_off(&self) {
        let old = &self.old_versions;
        let closed = self.store.pool.gate().close();
        if !old.snapshots.turn_off(&closed) {
            return;
        }
        let hidden = old.versions.hide_unneeded(self.horizon(), &closed);
        drop(closed);
        old.versions.free(&hidden);
        old.waiters.notify_all();
        if self.store.registry.keeps_rows() {
            self.store.registry.want();
        }
    }
}
