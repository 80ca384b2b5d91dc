//! Operations that block: driven step by step, the thread parked where a step has to wait.

use pando_format::PageId;
use pando_pool::{Hold, Restart};
use pando_stats::Ticker;
use pando_sync::held::{Kind, assert_none};
use pando_sync::{park, thread_waker};

use crate::engine::Engine;
use crate::error::Result;
use crate::halt::{Halt, Step, Stop};
use crate::holds::HoldShare;
use crate::profile::{self, Wait};
use crate::store::pause;

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
            holds: [const { None }; POINT_HOLDS as usize],
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
    // Dropped before the share that allows them.
    holds: [Option<Hold<'a>>; POINT_HOLDS as usize],
    /// Pages that were held so far: the oldest makes room.
    held: usize,
    share: Option<HoldShare<'a>>,
}

impl<'a> Blocked<'a> {
    fn wait(&mut self, stop: &Stop) -> Result<()> {
        match stop {
            Stop::Restart(Restart::Fault(page)) => self.fault(*page),
            Stop::Restart(restart @ (Restart::Conflict | Restart::Wait(_))) => {
                let begun = profile::begin();
                let served = self.engine.serve(*restart, &mut self.turns);
                profile::end(begun, Wait::of(stop));
                served
            }
            stop => self.park_on(stop),
        }
    }

    fn park_on(&self, stop: &Stop) -> Result<()> {
        let begun = profile::begin();
        let parked = self.park_for(stop);
        profile::end(begun, Wait::of(stop));
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
            self.engine.statistics.tick(Ticker::HoldBudgets, 1);
            loop {
                self.share = self.engine.holds.try_take(POINT_HOLDS, &mut self.refusals);
                if self.share.is_some() {
                    break;
                }
                self.park_on(&Stop::Holds(POINT_HOLDS))?;
            }
        }
        let begun = profile::begin();
        if !self.wanted.is_empty() {
            self.wanted.push(page);
            self.engine.fetch_many(&self.wanted)?;
            self.wanted.clear();
        }
        self.engine.fetch(page)?;
        profile::end(begun, Wait::Page);
        if let Some(share) = &self.share {
            let place = &mut self.holds[self.held % share.frames()];
            *place = None;
            // A page that is gone again is faulted in again.
            if let Ok(hold) = self.engine.pool.hold(page, 0) {
                *place = Some(hold);
                self.held += 1;
            } else {
                pause(&mut self.turns);
            }
        }
        Ok(())
    }
}
