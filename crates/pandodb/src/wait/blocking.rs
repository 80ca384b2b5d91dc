//! Operations that block: driven step by step, the thread parked where a step has to
//! wait (decision 057).
//!
//! One that faults again and again takes a share of the hold budget, the only one that it ever has:
//! most of it keeps what was fetched in memory, the rest is lent to its steps. So whoever waits for
//! a share has none, and all that have one come to their end.

use pando_format::PageId;
use pando_pool::{Hold, HoldShare, Restart};
use pando_stats::Ticker;
use pando_sync::held::{Kind, assert_none};
use pando_sync::{park, thread_waker};

use crate::engine::Engine;
use crate::error::Result;
use crate::pages::store::pause;
use crate::profile::{self, Wait};
use crate::wait::reason::{Halt, Step, Stop};

/// Faults of one operation before it takes a share of the hold budget.
const FAULTS_FREE: u32 = 6;
/// Frames that a point operation may have to hold: a tall tree and its sibling.
const POINT_HOLDS: u64 = 12;

impl Engine {
    /// Runs `step` until it ends, parking the thread where it has to wait. Pages that it faults in
    /// again and again are held for it, within the hold budget.
    pub(crate) fn block<T>(&self, mut step: impl FnMut(&mut Blocked<'_>) -> Step<T>) -> Result<T> {
        let mut blocked = Blocked {
            engine: self,
            turns: 0,
            faults: 0,
            refusals: 0,
            wanted: Vec::new(),
            writes: 0,
            holds: Vec::new(),
            places: 0,
            held: 0,
            share: None,
        };
        loop {
            match step(&mut blocked) {
                Ok(value) => return Ok(value),
                Err(Halt::Error(error)) => return Err(error),
                Err(Halt::Stop(stop)) => blocked.wait(&stop)?,
            }
        }
    }
}

/// A blocking operation between two of its attempts.
pub(crate) struct Blocked<'a> {
    engine: &'a Engine,
    turns: u32,
    faults: u32,
    /// How often there was no share of holds.
    refusals: u32,
    /// Pages that the step asks for beside the one it faulted on.
    pub(crate) wanted: Vec<PageId>,
    /// Writes whose leaves the step is going to hold.
    writes: u64,
    // Dropped before the share that allows them.
    holds: Vec<Option<Hold<'a>>>,
    /// Most pages that are held for the steps; what the share has beyond them is lent.
    places: usize,
    /// Pages that were held so far: the oldest makes room.
    held: usize,
    share: Option<HoldShare<'a>>,
}

impl<'a> Blocked<'a> {
    /// Frames that a step which commits `writes` may hold: None while the operation has no share,
    /// and the step takes its own.
    pub(crate) fn lend(&mut self, writes: usize) -> Option<u64> {
        self.writes = writes as u64;
        let frames = self.share.as_ref()?.frames();
        assert!(
            self.places as u64 <= frames,
            "more is held than the share allows"
        );
        let lent = frames - self.places as u64;
        // When more pages than are held were fetched for it, it was too much at once.
        let rounds = self.held / self.places;
        Some(lent >> rounds.min(63)).map(|lent| lent.max(1))
    }

    fn wait(&mut self, stop: &Stop) -> Result<()> {
        match stop {
            Stop::Restart(Restart::Fault(page)) => self.fault(*page),
            Stop::Restart(restart @ (Restart::Conflict | Restart::Wait(_))) => {
                let begun = profile::begin();
                let served = self.engine.store.serve(*restart, &mut self.turns);
                profile::end(begun, stop.wait());
                served
            }
            stop => self.park_on(stop),
        }
    }

    fn park_on(&self, stop: &Stop) -> Result<()> {
        let begun = profile::begin();
        let parked = self.park_for(stop);
        profile::end(begun, stop.wait());
        parked
    }

    fn park_for(&self, stop: &Stop) -> Result<()> {
        assert_none(&[Kind::Latch, Kind::Stripes, Kind::Gate]);
        let waker = thread_waker();
        while !self.engine.register(stop, &waker)? {
            park();
            if !matches!(stop, Stop::Job(_)) {
                break;
            }
        }
        Ok(())
    }

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
            // Those of a batch; the pages of a value are copied one after the other.
            let most = (self.places as u64).min(self.writes) as usize;
            for page in &wanted[..most.min(wanted.len() - 1)] {
                self.hold(*page);
            }
            wanted.clear();
            self.wanted = wanted;
        }
        self.engine.store.fetch(page)?;
        profile::end(begun, Wait::Page);
        // A page that is gone again is faulted in again.
        if self.share.is_some() && !self.hold(page) {
            pause(&mut self.turns);
        }
        Ok(())
    }

    /// Takes the operation's share: for the pages of a descent, and of a batch for the leaf of each
    /// write twice, to be fetched and to be held by the step.
    fn take_share(&mut self) -> Result<()> {
        self.engine.store.statistics.tick(Ticker::HoldBudgets, 1);
        let frames = POINT_HOLDS + 2 * self.writes;
        let share = loop {
            if let Some(share) = self.engine.holds.try_take(frames, &mut self.refusals) {
                break share;
            }
            self.park_on(&Stop::Holds(frames))?;
        };
        let lent = match self.writes {
            0 => 0,
            _ => (share.frames().saturating_sub(POINT_HOLDS) / 2).max(1),
        };
        assert!(
            lent < share.frames(),
            "a place for the page that is missing"
        );
        self.places = (share.frames() - lent) as usize;
        self.holds.resize_with(self.places, || None);
        self.share = Some(share);
        Ok(())
    }

    /// Holds a page that was fetched, in the place of the oldest one. False if it is gone again.
    fn hold(&mut self, page: PageId) -> bool {
        let place = &mut self.holds[self.held % self.places];
        *place = None;
        let Ok(hold) = self.engine.store.pool.hold(page, 0) else {
            return false;
        };
        *place = Some(hold);
        self.held += 1;
        true
    }
}
