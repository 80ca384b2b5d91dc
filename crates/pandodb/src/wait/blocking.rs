//! Operations that block: they run step by step, and park the thread where a step has to wait
//! (decision 057).
//!
//! An operation that faults again and again takes a pin share, the only one that it ever has. Most
//! of the share keeps the fetched pages in memory, and the rest is lent to its steps. So whoever
//! waits for a share has none, and all operations that have one finish.

use std::task::Waker;

use pando_format::PageId;
use pando_format::cast::usize_of;
use pando_pool::{PagePin, PinShare, Restart};
use pando_stats::Ticker;
use pando_sync::held::{Kind, assert_none};
use pando_sync::{park, thread, thread_waker};

use crate::engine::Engine;
use crate::error::Result;
use crate::locks::LockWait;
use crate::pages::store::pause;
use crate::profile::{self, Wait};
use crate::wait::reason::{Step, Unfinished, WaitReason};

/// Faults of one operation before it takes a pin share.
const FAULTS_FREE: u32 = 6;
/// Frames that a point operation may have to pin: the path in a tall tree, and siblings.
const POINT_PINS: u64 = 12;

impl Engine {
    /// Runs `step` until it ends, parking the thread where it has to wait. Pages that it faults on
    /// again and again are pinned for it, within the pin budget.
    pub(crate) fn block<T>(&self, mut step: impl FnMut(&mut Blocked<'_>) -> Step<T>) -> Result<T> {
        let mut blocked = Blocked {
            engine: self,
            turns: 0,
            faults: 0,
            refusals: 0,
            wanted: Vec::new(),
            writes: 0,
            pins: Vec::new(),
            places: 0,
            pinned: 0,
            share: None,
        };
        loop {
            match step(&mut blocked) {
                Ok(value) => return Ok(value),
                Err(Unfinished::Error(error)) => return Err(error),
                Err(Unfinished::Wait(reason)) => blocked.wait(&reason)?,
            }
        }
    }

    /// Parks until the waker that is registered for `reason` is woken, which may be spurious. For a
    /// job it parks until the job has ended.
    ///
    /// # Errors
    /// As [`Engine::register`].
    pub(crate) fn park_for(&self, reason: &WaitReason) -> Result<()> {
        assert_none(&[Kind::Latch, Kind::Stripes, Kind::Gate]);
        let waker = thread_waker();
        if let WaitReason::Lock(wait) = reason {
            return self.park_for_lock(wait, &waker);
        }
        while !self.register(reason, &waker)? {
            park();
            if !matches!(reason, WaitReason::Job(_)) {
                break;
            }
        }
        Ok(())
    }
}

impl Engine {
    /// As [`Engine::park_for`], for a lock: at most up to the deadline of the wait.
    fn park_for_lock(&self, wait: &LockWait, waker: &Waker) -> Result<()> {
        self.store.check_process()?;
        self.store.statistics.tick(Ticker::RestartsLock, 1);
        if !self.register_for_lock(wait, waker)? {
            thread::park_timeout(wait.left());
        }
        Ok(())
    }
}

/// A blocking operation between two of its attempts.
pub(crate) struct Blocked<'a> {
    engine: &'a Engine,
    /// How often it has paused in a row, for the length of the next pause.
    turns: u32,
    faults: u32,
    /// How often the pin budget refused a share.
    refusals: u32,
    /// Further pages that the step asks for, besides the one that it faulted on.
    pub(crate) wanted: Vec<PageId>,
    /// Number of writes whose leaves the step will pin.
    writes: u64,
    /// Pages that are pinned for the steps. Before `share`, so that they are dropped first.
    pins: Vec<Option<PagePin<'a>>>,
    /// Length of `pins`; the frames of the share beyond that are lent to the steps.
    places: usize,
    /// Number of pages pinned so far: the oldest pin makes room for the next.
    pinned: usize,
    share: Option<PinShare<'a>>,
}

impl<'a> Blocked<'a> {
    /// Returns how many frames a step that commits `writes` writes may pin; None while the
    /// operation has no share, and the step takes its own.
    pub(crate) fn lend(&mut self, writes: usize) -> Option<u64> {
        self.writes = writes as u64;
        let frames = self.share.as_ref()?.frames();
        assert!(
            self.places as u64 <= frames,
            "more is pinned than the share allows"
        );
        let lent = frames - self.places as u64;
        // If more pages were fetched for it than can be pinned, it tried too much at once.
        let rounds = self.pinned / self.places;
        Some(lent >> rounds.min(63)).map(|lent| lent.max(1))
    }

    /// Blocks until trying again makes sense.
    fn wait(&mut self, reason: &WaitReason) -> Result<()> {
        match reason {
            WaitReason::Restart(Restart::Fault(page)) => self.fault(*page),
            WaitReason::Restart(restart @ (Restart::Conflict | Restart::Wait(_))) => {
                let begun = profile::begin();
                let served = self.engine.store.serve(*restart, &mut self.turns);
                profile::end(begun, reason.wait());
                served
            }
            WaitReason::Lock(_) => {
                // Whoever holds the lock may need a share to get on.
                self.give_share_back();
                self.park_on(reason)
            }
            reason => self.park_on(reason),
        }
    }

    /// Gives the pin share back, with all that is pinned: as if it had not faulted yet.
    fn give_share_back(&mut self) {
        self.pins.clear();
        (self.places, self.pinned, self.faults) = (0, 0, 0);
        self.share = None;
    }

    /// Parks until `reason` is over, and notes the wait in the profile.
    fn park_on(&self, reason: &WaitReason) -> Result<()> {
        let begun = profile::begin();
        let parked = self.engine.park_for(reason);
        profile::end(begun, reason.wait());
        parked
    }

    /// Fetches `page` and the further wanted pages, and pins them if the operation has a share.
    fn fault(&mut self, page: PageId) -> Result<()> {
        self.turns = 0;
        self.faults += 1;
        if self.faults > FAULTS_FREE && self.share.is_none() {
            self.take_share()?;
        }
        let begun = profile::begin();
        if !self.wanted.is_empty() {
            let mut wanted = std::mem::take(&mut self.wanted);
            wanted.push(page);
            self.engine.fetch_many(&wanted)?;
            // Only those of a batch are pinned; the pages of a value are copied one after the
            // other.
            let most = usize_of((self.places as u64).min(self.writes));
            for page in &wanted[..most.min(wanted.len() - 1)] {
                self.pin(*page);
            }
            wanted.clear();
            self.wanted = wanted;
        }
        self.engine.store.fetch(page)?;
        profile::end(begun, Wait::Page);
        // A page that was evicted again is faulted in again.
        if self.share.is_some() && !self.pin(page) {
            pause(&mut self.turns);
        }
        Ok(())
    }

    /// Takes the operation's share. It has frames for the pages of a descent, and for the leaf of
    /// each write of a batch twice: to be fetched, and to be pinned by the step.
    fn take_share(&mut self) -> Result<()> {
        self.engine.store.statistics.tick(Ticker::PinShares, 1);
        let frames = POINT_PINS + 2 * self.writes;
        let share = loop {
            if let Some(share) = self.engine.pin_budget.try_take(frames, &mut self.refusals) {
                break share;
            }
            self.park_on(&WaitReason::Pins(frames))?;
        };
        let lent = match self.writes {
            0 => 0,
            _ => (share.frames().saturating_sub(POINT_PINS) / 2).max(1),
        };
        assert!(
            lent < share.frames(),
            "no frame is left for the missing page"
        );
        self.places = usize_of(share.frames() - lent);
        self.pins.resize_with(self.places, || None);
        self.share = Some(share);
        Ok(())
    }

    /// Pins a page that was fetched, in place of the oldest one. Returns false if it has left
    /// memory again.
    fn pin(&mut self, page: PageId) -> bool {
        let place = &mut self.pins[self.pinned % self.places];
        *place = None;
        let Ok(pin) = self.engine.store.pool.pin(page, 0) else {
            return false;
        };
        *place = Some(pin);
        self.pinned += 1;
        true
    }
}
