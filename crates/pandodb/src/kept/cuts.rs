//! The checkpoints that are kept, and requests to keep the next one.

use std::collections::BTreeSet;

use pando_format::Lsn;
use pando_sync::time::{self, Duration};
use pando_sync::{Arc, CoreLocal, Mutex, Rank};

use crate::error::{Error, Result};
use crate::kept::cut::{KeptCut, KeptHandle};
use crate::kept::young::Young;

/// Most checkpoints that are kept at a time.
const CUTS_MAX: usize = 16;
/// Most runs that are written for one checkpoint.
const RUNS_MAX: usize = 16;
/// Bytes of memory that all runs may take in the smallest store.
const RUN_BYTES_MIN: u64 = 256 << 10;

/// A request to keep the next checkpoint.
#[derive(Debug)]
pub(crate) struct Request(Mutex<Option<Result<KeptHandle>>>);

impl Request {
    /// Returns what has become of it; None if no checkpoint has served it.
    pub(crate) fn take(&self) -> Option<Result<KeptHandle>> {
        self.0.lock().take()
    }
}

/// Snapshots in memory that may be settled, of one core. On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct YoungList {
    young: Mutex<Vec<Arc<Young>>>,
}

impl Default for YoungList {
    fn default() -> Self {
        Self {
            young: Mutex::new(Rank::Leaf, Vec::new()),
        }
    }
}

impl YoungList {
    /// Adds a snapshot.
    pub(crate) fn add(&self, young: &Arc<Young>) {
        self.young.lock().push(young.clone());
    }

    /// Removes a snapshot that ends.
    pub(crate) fn remove(&self, young: &Arc<Young>) {
        let mut all = self.young.lock();
        let place = all.iter().position(|known| Arc::ptr_eq(known, young));
        let removed = place.map(|place| all.swap_remove(place));
        drop(all);
        drop(removed);
    }
}

/// Whether snapshots in memory are to be settled on the next checkpoint.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Settling {
    #[default]
    Idle,
    Wanted(SettleFor),
    Running,
}

/// Why snapshots in memory are settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettleFor {
    /// One has become old.
    Age,
    /// Old versions take much of their room: those of transactions, too.
    Room,
}

/// The kept checkpoints of a store.
#[derive(Debug)]
pub(crate) struct KeptCuts {
    state: Mutex<State>,
    /// Snapshots in memory that may be settled, by the core on which they began: who begins one
    /// writes no line that all cores share.
    young: CoreLocal<Arc<YoungList>>,
    /// Bytes of memory that all of them may take.
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Arc<Request>>,
    /// In ascending order of their LSNs; some may have ended.
    cuts: Vec<Arc<KeptCut>>,
    /// The LSN of the one that is being made.
    making: Option<Lsn>,
    settling: Settling,
    is_closed: bool,
    /// When a snapshot could not be settled, and for how long nobody tries.
    failed: Option<(time::Instant, Duration)>,
    /// Number of the checkpoint that was asked for when one was ended for room.
    for_room: Option<u64>,
}

impl State {
    /// Those that have ended have no memory and no blocks any more.
    fn forget_ended(&mut self) {
        self.cuts.retain(|cut| !cut.is_ended());
    }

    /// Bytes of memory of all.
    fn bytes(&self) -> u64 {
        self.cuts.iter().map(|cut| cut.bytes()).sum()
    }
}

/// What kept checkpoints take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeptFigures {
    pub(crate) number: u64,
    /// Bytes of memory.
    pub(crate) bytes: u64,
    /// Age of the oldest.
    pub(crate) age: Option<Duration>,
}

impl KeptCuts {
    /// Returns none, which may take `bytes_max` bytes of memory.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            state: Mutex::new(Rank::Leaf, State::default()),
            young: CoreLocal::new("young snapshots", |_| Arc::default()),
            bytes_max,
        }
    }

    /// Asks for the next checkpoint to be kept. The caller has it made.
    pub(crate) fn request(&self) -> Arc<Request> {
        let request = Arc::new(Request(Mutex::default()));
        self.state.lock().requests.push(request.clone());
        request
    }

    /// Takes a request back, unless a checkpoint has taken it.
    pub(crate) fn withdraw(&self, request: &Arc<Request>) {
        let is_other = |known: &Arc<Request>| !Arc::ptr_eq(known, request);
        self.state.lock().requests.retain(is_other);
    }

    /// Takes the requests that a checkpoint serves which begins after this call.
    pub(crate) fn take_requests(&self) -> Vec<Arc<Request>> {
        std::mem::take(&mut self.state.lock().requests)
    }

    /// Notes that the checkpoint at `lsn` will be kept. The gate is closed: no later change of a
    /// table misses it.
    pub(crate) fn begin(&self, lsn: Lsn) {
        self.state.lock().making = Some(lsn);
    }

    /// Adds the checkpoint that was begun, or notes that it is not kept.
    ///
    /// # Errors
    /// Those of `made`; [`Error::Closed`].
    pub(crate) fn add(&self, made: Result<KeptHandle>) -> Result<KeptHandle> {
        let mut state = self.state.lock();
        state.making = None;
        let handle = made?;
        if state.is_closed {
            drop(state);
            return Err(Error::Closed);
        }
        if !state.cuts.iter().any(|cut| Arc::ptr_eq(cut, handle.cut())) {
            let last = state.cuts.last().map(|cut| cut.lsn());
            assert!(last <= Some(handle.lsn()), "checkpoints only go forward");
            state.cuts.push(handle.cut().clone());
        }
        Ok(handle)
    }

    /// Answers `requests`, and ends the settling of snapshots.
    pub(crate) fn finish(&self, requests: &[Arc<Request>], kept: &Result<KeptHandle>) {
        let mut state = self.state.lock();
        if state.settling == Settling::Running {
            state.settling = Settling::Idle;
        }
        drop(state);
        for request in requests {
            *request.0.lock() = Some(kept.clone());
        }
    }

    /// Returns the list of this core for a snapshot in memory that may be settled.
    pub(crate) fn young_here(&self) -> Arc<YoungList> {
        self.young.here().clone()
    }

    /// Returns the snapshots in memory that have not ended.
    fn young(&self) -> Vec<Arc<Young>> {
        let mut all = Vec::new();
        for list in self.young.iter() {
            all.extend(list.young.lock().iter().cloned());
        }
        all.retain(|young| !young.registration().is_ended());
        all
    }

    /// Returns the snapshots in memory to be settled on a checkpoint at `lsn`: those that are older
    /// than `age`, and the oldest if it belongs to no transaction; a limited number of them, by
    /// their LSN.
    pub(crate) fn young_until(
        &self,
        lsn: Lsn,
        age: Duration,
        settle_for: SettleFor,
    ) -> Vec<Arc<Young>> {
        let mut young = self.young();
        young.retain(|young| {
            young.lsn() <= lsn && (settle_for == SettleFor::Room || !young.is_of_transaction())
        });
        young.sort_unstable_by_key(|young| young.lsn());
        let oldest = young.first().map(|young| young.lsn());
        young.retain(|young| {
            let is_oldest = Some(young.lsn()) == oldest && !young.is_of_transaction();
            is_oldest || young.age() >= age
        });
        let mut lsns = BTreeSet::new();
        young.retain(|young| {
            lsns.insert(young.lsn());
            lsns.len() <= RUNS_MAX
        });
        young
    }

    /// Returns whether the oldest snapshot in memory, which is that of `horizon`, may be settled;
    /// one of a transaction if it is older than `age`. Then commits may wait for that.
    pub(crate) fn may_settle(&self, horizon: Lsn, age: Duration) -> bool {
        let may = |young: &Arc<Young>| !young.is_of_transaction() || young.age() >= age;
        let young = self.young();
        !self.has_failed() && young.iter().any(|one| one.lsn() == horizon && may(one))
    }

    /// Returns whether a snapshot in memory that belongs to no transaction is older than `age`.
    pub(crate) fn has_young_older_than(&self, age: Duration) -> bool {
        let is_old = |young: &Arc<Young>| !young.is_of_transaction() && young.age() >= age;
        !self.has_failed() && self.young().iter().any(is_old)
    }

    /// Returns whether a snapshot could not be settled a short time ago, or the store is closed.
    fn has_failed(&self) -> bool {
        let state = self.state.lock();
        let failed = |(at, pause): (time::Instant, Duration)| at.elapsed() < pause;
        state.is_closed || state.failed.is_some_and(failed)
    }

    /// Has snapshots in memory settled on the next checkpoint. Returns true if the caller must have
    /// one made.
    pub(crate) fn want_settling(&self, settle_for: SettleFor) -> bool {
        let mut state = self.state.lock();
        match (state.settling, settle_for) {
            (Settling::Idle, _) => {
                state.settling = Settling::Wanted(settle_for);
                true
            }
            (Settling::Wanted(_), SettleFor::Room) => {
                state.settling = Settling::Wanted(SettleFor::Room);
                false
            }
            (Settling::Wanted(_) | Settling::Running, _) => false,
        }
    }

    /// Returns whether, and why, the checkpoint that begins after this call is to settle snapshots.
    /// [`KeptCuts::finish`] follows then.
    pub(crate) fn begin_settling(&self) -> Option<SettleFor> {
        let mut state = self.state.lock();
        let Settling::Wanted(settle_for) = state.settling else {
            return None;
        };
        if state.is_closed {
            return None;
        }
        state.settling = Settling::Running;
        Some(settle_for)
    }

    /// Notes that a snapshot could not be settled; nobody tries for `pause`.
    pub(crate) fn note_failure(&self, pause: Duration) {
        self.state.lock().failed = Some((time::now(), pause));
    }

    /// Checks that there is room for a run that takes `bytes` of memory.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn check_run(&self, bytes: u64) -> Result<()> {
        let cuts = self.state.lock().cuts.clone();
        let taken: u64 = cuts.iter().map(|cut| cut.run_bytes()).sum();
        if taken + bytes <= self.bytes_max.max(RUN_BYTES_MIN) {
            return Ok(());
        }
        let what = format!("settled snapshots take {taken} bytes of memory for what was replaced");
        Err(Error::Full { what })
    }

    /// Returns the kept checkpoint at `lsn`.
    pub(crate) fn find(&self, lsn: Lsn) -> Option<KeptHandle> {
        let cut = {
            let state = self.state.lock();
            state.cuts.iter().find(|cut| cut.lsn() == lsn).cloned()
        };
        KeptHandle::of(&cut?)
    }

    /// Checks that there is room for another one, which takes `bytes` of memory.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn check_room(&self, bytes: u64) -> Result<()> {
        let mut state = self.state.lock();
        state.forget_ended();
        let (number, taken) = (state.cuts.len(), state.bytes());
        if number == 0 || (number < CUTS_MAX && taken + bytes <= self.bytes_max) {
            return Ok(());
        }
        Err(Error::Full {
            what: format!(
                "{number} settled snapshots take {taken} of {} bytes of memory, and another one \
                 takes {bytes} (there are {CUTS_MAX} at most): end some, or open the store with a \
                 larger max_memory",
                self.bytes_max
            ),
        })
    }

    /// Returns the least and the greatest LSN at which somebody reads one, also of one that is
    /// being made.
    pub(crate) fn bounds(&self) -> Option<(Lsn, Lsn)> {
        let (cuts, making) = {
            let mut state = self.state.lock();
            state.forget_ended();
            (state.cuts.clone(), state.making)
        };
        let lowest = cuts.iter().map(|cut| cut.lowest());
        let highest = cuts.iter().map(|cut| cut.lsn());
        let lowest = lowest.chain(making).min()?;
        Some((lowest, highest.chain(making).max()?))
    }

    /// Ends the oldest one, so that its blocks are free; returns its LSN.
    pub(crate) fn end_oldest(&self) -> Option<Lsn> {
        loop {
            let oldest = {
                let mut state = self.state.lock();
                state.forget_ended();
                state.cuts.first().cloned()
            };
            // Without the lock; and while it is in the list: what is kept for its readers is kept
            // until they see that it has ended.
            let oldest = oldest?;
            if oldest.end() {
                return Some(oldest.lsn());
            }
        }
    }

    /// Notes that checkpoint `asked` frees what the end of one has left to it.
    pub(crate) fn note_checkpoint(&self, asked: u64) {
        self.state.lock().for_room = Some(asked);
    }

    /// Returns the number of the last [`KeptCuts::note_checkpoint`].
    pub(crate) fn checkpoint_for_room(&self) -> Option<u64> {
        self.state.lock().for_room
    }

    /// Ends all of them, and those that are being made.
    pub(crate) fn end_all(&self) {
        self.close();
        while self.end_oldest().is_some() {}
    }

    /// Has no further snapshot settled, and no further checkpoint kept.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    /// Returns the number of snapshots in memory, and how long the oldest has been open.
    pub(crate) fn figures_of_young(&self) -> (u64, Option<Duration>) {
        let young = self.young();
        let oldest = young.iter().map(|young| young.age()).max();
        (young.len() as u64, oldest)
    }

    /// Returns what they take.
    pub(crate) fn figures(&self) -> KeptFigures {
        let mut state = self.state.lock();
        state.forget_ended();
        let cuts = state.cuts.clone();
        drop(state);
        KeptFigures {
            number: cuts.len() as u64,
            bytes: cuts.iter().map(|cut| cut.bytes() + cut.run_bytes()).sum(),
            age: cuts.first().map(|cut| cut.age()),
        }
    }
}
