//! The checkpoints that are kept, and requests to keep the next one.

use pando_format::Lsn;
use pando_sync::time::{self, Duration};
use pando_sync::{Arc, Mutex, Rank};

use crate::error::{Error, Result};
use crate::kept::cut::{KeptCut, KeptHandle};
use crate::kept::young::Young;

/// Most checkpoints that are kept at a time.
const CUTS_MAX: usize = 16;
/// How long after a failure nobody tries to settle a snapshot.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// A request to keep the next checkpoint.
#[derive(Debug)]
pub(crate) struct Request(Mutex<Option<Result<KeptHandle>>>);

impl Request {
    /// Returns what has become of it; None if no checkpoint has served it.
    pub(crate) fn take(&self) -> Option<Result<KeptHandle>> {
        self.0.lock().take()
    }
}

/// Whether snapshots in memory are to be settled on the next checkpoint.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Settling {
    #[default]
    Idle,
    Wanted,
    Running,
}

/// The kept checkpoints of a store.
#[derive(Debug)]
pub(crate) struct KeptCuts {
    state: Mutex<State>,
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
    /// Snapshots in memory that may be settled.
    young: Vec<Arc<Young>>,
    settling: Settling,
    /// When a snapshot could not be settled.
    failed: Option<time::Instant>,
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

    /// Answers `requests`: the checkpoint is kept, or why it is not.
    pub(crate) fn finish(&self, requests: &[Arc<Request>], made: &Result<KeptHandle>) {
        let mut state = self.state.lock();
        state.making = None;
        state.settling = match state.settling {
            Settling::Wanted => Settling::Wanted,
            Settling::Idle | Settling::Running => Settling::Idle,
        };
        if let Ok(handle) = made
            && !state.cuts.iter().any(|cut| Arc::ptr_eq(cut, handle.cut()))
        {
            let last = state.cuts.last().map(|cut| cut.lsn());
            assert!(last <= Some(handle.lsn()), "checkpoints only go forward");
            state.cuts.push(handle.cut().clone());
        }
        drop(state);
        for request in requests {
            *request.0.lock() = Some(made.clone());
        }
    }

    /// Adds a snapshot in memory that may be settled.
    pub(crate) fn add_young(&self, young: &Arc<Young>) {
        self.state.lock().young.push(young.clone());
    }

    /// Removes a snapshot that ends.
    pub(crate) fn remove_young(&self, young: &Arc<Young>) {
        let mut state = self.state.lock();
        let place = state
            .young
            .iter()
            .position(|known| Arc::ptr_eq(known, young));
        let removed = place.map(|place| state.young.swap_remove(place));
        drop(state);
        drop(removed);
    }

    /// Returns the snapshots in memory that are not newer than `lsn` and have not ended.
    pub(crate) fn young_until(&self, lsn: Lsn) -> Vec<Arc<Young>> {
        let state = self.state.lock();
        let young = state.young.iter();
        let until = |young: &&Arc<Young>| young.lsn() <= lsn && !young.registration().is_ended();
        young.filter(until).cloned().collect()
    }

    /// Returns whether the oldest snapshot in memory, which is that of `horizon`, may be settled.
    /// Then commits may wait for that.
    pub(crate) fn may_settle(&self, horizon: Lsn) -> bool {
        let state = self.state.lock();
        let oldest =
            |young: &Arc<Young>| young.lsn() == horizon && !young.registration().is_ended();
        let has_failed = state.failed.is_some_and(|at| at.elapsed() < RETRY_AFTER);
        !has_failed && state.young.iter().any(oldest)
    }

    /// Returns whether a snapshot in memory is older than `age`.
    pub(crate) fn has_young_older_than(&self, age: Duration) -> bool {
        let state = self.state.lock();
        let is_old = |young: &Arc<Young>| young.age() >= age && !young.registration().is_ended();
        let has_failed = state.failed.is_some_and(|at| at.elapsed() < RETRY_AFTER);
        !has_failed && state.young.iter().any(is_old)
    }

    /// Has snapshots in memory settled on the next checkpoint. Returns true if the caller must have
    /// one made.
    pub(crate) fn want_settling(&self) -> bool {
        let mut state = self.state.lock();
        let is_idle = state.settling == Settling::Idle;
        if is_idle {
            state.settling = Settling::Wanted;
        }
        is_idle
    }

    /// Returns whether the checkpoint that begins after this call is to settle snapshots.
    /// [`KeptCuts::finish`] follows then.
    pub(crate) fn begin_settling(&self) -> bool {
        let mut state = self.state.lock();
        let is_wanted = state.settling == Settling::Wanted;
        if is_wanted {
            state.settling = Settling::Running;
        }
        is_wanted
    }

    /// Notes that a snapshot could not be settled.
    pub(crate) fn note_failure(&self) {
        self.state.lock().failed = Some(time::now());
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

    /// Returns the least LSN at which somebody reads one, also of one that is being made.
    pub(crate) fn oldest(&self) -> Option<Lsn> {
        let mut state = self.state.lock();
        state.forget_ended();
        let cuts = state.cuts.iter().map(|cut| cut.lowest());
        cuts.chain(state.making).min()
    }

    /// Ends the oldest one, so that its blocks are free; returns its LSN.
    pub(crate) fn end_oldest(&self) -> Option<Lsn> {
        loop {
            let oldest = {
                let mut state = self.state.lock();
                state.forget_ended();
                (!state.cuts.is_empty()).then(|| state.cuts.remove(0))
            };
            // Without the lock.
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

    /// Ends all of them.
    pub(crate) fn end_all(&self) {
        while self.end_oldest().is_some() {}
    }

    /// Returns what they take.
    pub(crate) fn figures(&self) -> KeptFigures {
        let mut state = self.state.lock();
        state.forget_ended();
        KeptFigures {
            number: state.cuts.len() as u64,
            bytes: state.bytes(),
            age: state.cuts.first().map(|cut| cut.age()),
        }
    }
}
