//! Registered snapshots: the LSNs at which somebody reads, so that a commit saves what these reads
//! still need before it replaces it.
//!
//! A snapshot at LSN S shows all batches up to S and none after it. Each core has a line of slots;
//! a snapshot takes a slot of the core that it begins on, and gives it back from wherever it ends.
//! Snapshots that find no free slot share two bounds: commits treat them as if they read at every
//! LSN between the least and the greatest of theirs.
//!
//! # The ordering argument
//!
//! ```text
//! snapshot                                commit
//!   slot = beginning, at a bound            append its record: the reserved end is L
//!   fence(SeqCst)                           fence(SeqCst)
//!   S = the reserved end of the log         look at all slots; save for those below L
//!   slot = S                                change the leaf
//!   wait until all up to S is applied
//! ```
//!
//! One of the two fences comes first. If the snapshot's does, the commit sees the slot, and saves:
//! for S, or for any LSN from the bound on while it does not know S. If the commit's does, the
//! snapshot reads a reserved end of at least L, so that the batch belongs to it, and it waits until
//! the batch is applied. In neither case does it miss a version that it needs.
//!
//! The horizon is the LSN up to which no version is needed: the least registered LSN, or the
//! reserved end if there is none. The end is read before a fence and the slots after it. A snapshot
//! that is not seen fenced later, so it reads the same end or a later one.
//!
//! Commits fence and look only while the *mode* is on. It changes only while the apply gate is
//! closed, so it is constant for a commit inside the gate. It is turned off and then, after a
//! fence, on again if a slot is taken; a snapshot takes its slot, fences, and then reads the mode.
//! One of them sees the other: the mode stays on, or the snapshot turns it on.

use pando_format::Lsn;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use pando_sync::gate::Closed;
use pando_sync::{Arc, CoreLocal, Mutex, Rank};

use crate::readers::Readers;

/// Number of slots of a core: with the two bounds they fill one pair of cache lines. Models have
/// one, so that two snapshots are enough to need the bounds.
const SLOTS: usize = if cfg!(pando_loom) { 1 } else { 12 };

/// The slot is taken. LSNs are multiples of 8, which leaves three bits for flags; 0 is a free slot.
const TAKEN: u64 = 1;
/// The LSN is a lower bound of that of the snapshot, which is about to begin.
const BEGINNING: u64 = 2;
/// The snapshot was ended by others: nothing is saved for it any longer.
const ENDED: u64 = 4;
const FLAGS: u64 = TAKEN | BEGINNING | ENDED;

/// What a word of a slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Free,
    Beginning(Lsn),
    At(Lsn),
    Ended,
}

impl Slot {
    fn of(word: u64) -> Self {
        let lsn = Lsn(word & !FLAGS);
        match word & FLAGS {
            0 => Self::Free,
            flags if flags & ENDED != 0 => Self::Ended,
            flags if flags & BEGINNING != 0 => Self::Beginning(lsn),
            _ => Self::At(lsn),
        }
    }

    fn word(self) -> u64 {
        let with = |lsn: Lsn, flags| {
            assert!(lsn.0 & FLAGS == 0, "{lsn} ends no record");
            lsn.0 | flags
        };
        match self {
            Self::Free => 0,
            Self::Beginning(bound) => with(bound, TAKEN | BEGINNING),
            Self::At(lsn) => with(lsn, TAKEN),
            Self::Ended => TAKEN | ENDED,
        }
    }

    /// Returns the least and the greatest LSN that it may read at, if it reads at all.
    fn bounds(self) -> Option<(u64, u64)> {
        match self {
            Self::Free | Self::Ended => None,
            Self::Beginning(bound) => Some((bound.0, u64::MAX)),
            Self::At(lsn) => Some((lsn.0, lsn.0)),
        }
    }
}

/// The snapshots that have begun on one core. In an allocation of its own: a snapshot counts its
/// references there, and not in a line that all cores share.
#[derive(Debug)]
#[repr(align(128))]
struct Line {
    slots: [AtomicU64; SLOTS],
    /// Least LSN of the crowd; the greatest number when that is empty. Written under `crowd`.
    low: AtomicU64,
    /// Greatest LSN of the crowd; 0 when that is empty. Written under `crowd`.
    high: AtomicU64,
    /// The words of snapshots that found no free slot.
    crowd: Mutex<Vec<Arc<AtomicU64>>>,
}

impl Line {
    fn new() -> Self {
        Self {
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
            low: AtomicU64::new(u64::MAX),
            high: AtomicU64::new(0),
            crowd: Mutex::new(Rank::Leaf, Vec::new()),
        }
    }

    /// Takes a slot, or a place in the crowd, for a snapshot that begins at `bound` or later.
    fn take(this: &Arc<Self>, bound: Lsn) -> Place {
        let word = Slot::Beginning(bound).word();
        let line = this.clone();
        for index in 0..SLOTS {
            let slot = &this.slots[index];
            // Relaxed: the fence in begin orders it.
            let free = slot.load(Ordering::Relaxed) == 0
                && slot
                    .compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok();
            if free {
                let whence = Whence::Slot(index);
                return Place { line, whence };
            }
        }
        let own = Arc::new(AtomicU64::new(word));
        this.change_crowd(|crowd| crowd.push(own.clone()));
        let whence = Whence::Crowd(own);
        Place { line, whence }
    }

    /// Changes the crowd, and renews its bounds.
    fn change_crowd<R>(&self, change: impl FnOnce(&mut Vec<Arc<AtomicU64>>) -> R) -> R {
        let mut crowd = self.crowd.lock();
        let changed = change(&mut crowd);
        let (mut low, mut high) = (u64::MAX, 0);
        for word in crowd.iter() {
            if let Some((from, to)) = Slot::of(word.load(Ordering::Relaxed)).bounds() {
                (low, high) = (low.min(from), high.max(to));
            }
        }
        // Release: a caller that sees a snapshot gone sees everything that the snapshot has read
        // as read. The fence in begin orders what is new.
        self.low.store(low, Ordering::Release);
        self.high.store(high, Ordering::Release);
        changed
    }

    /// Calls `f` with the least and the greatest LSN of each slot, and of the crowd.
    fn for_each(&self, mut f: impl FnMut(u64, u64)) {
        for slot in &self.slots {
            // Acquire: pairs with the Release of the end of a snapshot.
            let word = slot.load(Ordering::Acquire);
            if word == 0 {
                // Most slots are free.
                continue;
            }
            if let Some((low, high)) = Slot::of(word).bounds() {
                f(low, high);
            }
        }
        // Acquire: as above. Each bound is one of a moment after the fence of every snapshot that
        // must be seen, and so covers it, even if the two are from different moments.
        let low = self.low.load(Ordering::Acquire);
        let high = self.high.load(Ordering::Acquire);
        if low <= high {
            f(low, high);
        }
    }
}

/// Where a snapshot has registered; given back on drop.
#[derive(Debug)]
struct Place {
    line: Arc<Line>,
    whence: Whence,
}

#[derive(Debug)]
enum Whence {
    /// A slot of the line.
    Slot(usize),
    /// A word in the crowd of the line.
    Crowd(Arc<AtomicU64>),
}

impl Place {
    fn word(&self) -> &AtomicU64 {
        match &self.whence {
            Whence::Slot(index) => &self.line.slots[*index],
            Whence::Crowd(word) => word,
        }
    }

    /// Replaces the bound of a snapshot that begins by its LSN, unless others have ended it.
    fn set(&self, bound: Lsn, lsn: Lsn) {
        let (from, to) = (Slot::Beginning(bound).word(), Slot::At(lsn).word());
        let set = |word: &AtomicU64| {
            // Release: a caller that ends the snapshot has its LSN.
            let set = word.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
            let is_ended = |now| Slot::of(now) == Slot::Ended;
            debug_assert!(
                set.is_ok() || set.is_err_and(is_ended),
                "the slot of another"
            );
        };
        match &self.whence {
            Whence::Slot(index) => set(&self.line.slots[*index]),
            Whence::Crowd(own) => self.line.change_crowd(|_| set(own)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match &self.whence {
            Whence::Slot(index) => {
                // Release: whoever sees the slot free sees all that was read as read.
                let before = self.line.slots[*index].swap(0, Ordering::Release);
                assert!(before & TAKEN != 0, "a snapshot was released twice");
            }
            Whence::Crowd(own) => self.line.change_crowd(|crowd| {
                let place = crowd.iter().position(|word| Arc::ptr_eq(word, own));
                crowd.swap_remove(place.expect("a snapshot was released twice"));
            }),
        }
    }
}

/// A snapshot that is about to begin: it is registered, but not at an LSN yet.
#[derive(Debug)]
#[must_use = "it registers nothing once it is dropped"]
pub struct Beginning {
    place: Place,
    bound: Lsn,
}

impl Beginning {
    /// Registers at `lsn`, which the caller has read as the reserved end of the log since it has
    /// this and, if it turned the mode on itself, since then.
    ///
    /// # Panics
    /// When `lsn` is below the bound.
    pub fn at(self, lsn: Lsn) -> Registration {
        assert!(lsn >= self.bound, "{lsn} is below {}", self.bound);
        self.place.set(self.bound, lsn);
        Registration {
            place: self.place,
            lsn,
        }
    }
}

/// A registered snapshot; it ends on drop. Whatever is saved for its LSN stays until then, unless
/// somebody else ends the snapshot: see [`Registration::is_ended`].
#[derive(Debug)]
pub struct Registration {
    place: Place,
    lsn: Lsn,
}

impl Registration {
    /// Returns the LSN that it reads at.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Returns whether somebody else has ended the snapshot. What was read before a call that
    /// returns false is right; what was read before one that returns true may be anything.
    #[inline]
    pub fn is_ended(&self) -> bool {
        // Acquire: the reads before come before this load. They may have seen what was done after
        // the end, which came after the word was written: then this sees the word.
        fence(Ordering::Acquire);
        self.place.word().load(Ordering::Relaxed) & ENDED != 0
    }

    /// Ends it for its owner, who reads no longer: nothing is saved for it from now on.
    pub fn end(&self) {
        // False if others have ended it before.
        let _is_ended_now = match &self.place.whence {
            Whence::Slot(index) => end_word(&self.place.line.slots[*index], self.lsn),
            Whence::Crowd(own) => self.place.line.change_crowd(|_| end_word(own, self.lsn)),
        };
    }
}

/// The registered snapshots of one store.
#[derive(Debug)]
pub struct Snapshots {
    /// Commits fence and look. Written while the apply gate is closed.
    is_on: AtomicBool,
    lines: CoreLocal<Arc<Line>>,
}

impl Default for Snapshots {
    fn default() -> Self {
        Self::new()
    }
}

impl Snapshots {
    /// Returns no snapshots; the mode is off.
    pub fn new() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            lines: CoreLocal::new("snapshots", |_| Arc::new(Line::new())),
        }
    }

    /// Returns whether commits look for snapshots. Constant inside the apply gate.
    #[inline]
    pub fn is_on(&self) -> bool {
        // Relaxed: the gate orders it for commits, and the fence in begin for snapshots.
        self.is_on.load(Ordering::Relaxed)
    }

    /// Makes commits look for snapshots from now on.
    pub fn turn_on(&self, _closed: &Closed<'_>) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Makes commits look no longer, unless there is a snapshot that others have not ended. Returns
    /// true if they do not.
    pub fn turn_off(&self, _closed: &Closed<'_>) -> bool {
        self.is_on.store(false, Ordering::Relaxed);
        // SeqCst: pairs with the fence in begin; see the module.
        fence(Ordering::SeqCst);
        let needed = self.is_needed();
        self.is_on.store(needed, Ordering::Relaxed);
        !needed
    }

    /// Returns whether commits have to save anything for anybody.
    pub fn is_needed(&self) -> bool {
        let mut needed = false;
        for line in self.lines.iter() {
            line.for_each(|_, _| needed = true);
        }
        needed
    }

    /// Returns whether commits may have to save something for somebody but `own`. Also true for a
    /// snapshot that found no free slot of its core.
    pub fn is_needed_besides(&self, own: &Registration) -> bool {
        let Whence::Slot(index) = own.place.whence else {
            return true;
        };
        self.lines.iter().any(|line| {
            let mut needed = 0;
            line.for_each(|_, _| needed += 1);
            let is_here = Arc::ptr_eq(line, &own.place.line);
            let word = line.slots[index].load(Ordering::Acquire);
            needed > usize::from(is_here && Slot::of(word).bounds().is_some())
        })
    }

    /// Registers a snapshot that will begin at `bound`, a reserved end of the log, or later. If the
    /// mode is off after this call, the caller turns it on before it reads the LSN.
    pub fn begin(&self, bound: Lsn) -> Beginning {
        let place = Line::take(self.lines.here(), bound);
        // SeqCst: pairs with the fences of commits, of horizon and of turn_off; see the module.
        fence(Ordering::SeqCst);
        Beginning { place, bound }
    }

    /// Returns who reads below `lsn`, the LSN of a batch that has been appended and has changed
    /// nothing yet. For a caller inside the gate, while the mode is on.
    pub fn look(&self, lsn: Lsn) -> Readers {
        // SeqCst: pairs with the fence in begin; see the module.
        fence(Ordering::SeqCst);
        let mut readers = Readers::below(lsn);
        for line in self.lines.iter() {
            line.for_each(|low, high| readers.add(low, high));
        }
        readers
    }

    /// Returns the LSN up to which no snapshot needs a version, not even one that begins later.
    /// `reserved_end` returns that of the log.
    pub fn horizon(&self, reserved_end: impl FnOnce() -> Lsn) -> Lsn {
        let mut least = reserved_end().0;
        // SeqCst: pairs with the fence in begin; see the module.
        fence(Ordering::SeqCst);
        for line in self.lines.iter() {
            line.for_each(|low, _| least = least.min(low));
        }
        Lsn(least)
    }

    /// Ends the oldest snapshot that has begun: its reads fail from now on. Returns its LSN; None
    /// if there is none.
    pub fn end_oldest(&self) -> Option<Lsn> {
        loop {
            let oldest = self.oldest()?;
            // Fails if it has just ended by itself.
            if self.lines.iter().any(|line| end_at(line, oldest)) {
                return Some(oldest);
            }
        }
    }

    /// Ends all snapshots that read below `limit`, those that are about to begin, too: for a batch
    /// at `limit` that cannot save what they read.
    pub fn end_below(&self, limit: Lsn) {
        let ended = Slot::Ended.word();
        let end = |word: &AtomicU64| {
            let mut now = word.load(Ordering::Acquire);
            while Slot::of(now).bounds().is_some_and(|(low, _)| low < limit.0) {
                // Release: as in end_at.
                let end = word.compare_exchange(now, ended, Ordering::Release, Ordering::Acquire);
                match end {
                    Ok(_) => break,
                    Err(changed) => now = changed,
                }
            }
        };
        for line in self.lines.iter() {
            line.slots.iter().for_each(end);
            line.change_crowd(|crowd| crowd.iter().for_each(|word| end(word)));
        }
    }

    /// Returns the least LSN of a snapshot that has begun.
    fn oldest(&self) -> Option<Lsn> {
        let mut oldest: Option<Lsn> = None;
        let mut note = |word: &AtomicU64| {
            if let Slot::At(lsn) = Slot::of(word.load(Ordering::Acquire)) {
                oldest = Some(oldest.map_or(lsn, |known| known.min(lsn)));
            }
        };
        for line in self.lines.iter() {
            line.slots.iter().for_each(&mut note);
            line.crowd.lock().iter().for_each(|word| note(word));
        }
        oldest
    }

    /// Returns whether nobody is registered. Snapshots that were ended by others count until their
    /// owners drop them.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns the number of registered snapshots, including those that others have ended.
    pub fn count(&self) -> usize {
        let of_line = |line: &Arc<Line>| {
            let taken = |slot: &&AtomicU64| slot.load(Ordering::Acquire) != 0;
            line.slots.iter().filter(taken).count() + line.crowd.lock().len()
        };
        self.lines.iter().map(of_line).sum()
    }
}

/// Ends one snapshot of `line` that reads at `lsn`. Returns false if there is none.
fn end_at(line: &Line, lsn: Lsn) -> bool {
    let end = |word: &AtomicU64| end_word(word, lsn);
    line.slots.iter().any(end) || line.change_crowd(|crowd| crowd.iter().any(|word| end(word)))
}

/// Ends the snapshot of `word`, if it reads at `lsn`.
fn end_word(word: &AtomicU64, lsn: Lsn) -> bool {
    let (at, ended) = (Slot::At(lsn).word(), Slot::Ended.word());
    // Release: pairs with the Acquire in is_ended, through whatever is done after the end.
    word.compare_exchange(at, ended, Ordering::Release, Ordering::Relaxed)
        .is_ok()
}
