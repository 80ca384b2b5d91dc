//! Threads that read large collections for replies, and the replies that they read (decision 130).
//!
//! A loop must not wait for the disk, and a snapshot is read by calls that do. So a reply that is
//! longer than what a loop makes in memory is read here: a piece is encoded, the loop sends it, and
//! asks for the next one but one. A client that reads slowly keeps two pieces in memory, and no
//! thread.
//!
//! There are as many threads as loops, at most. One is started when all others have something to
//! do, and ends when there has been nothing to do for a while. Replies wait in one queue, in which
//! each of them is once at most.
//!
//! A reply that is sorted (decision 131) has memory of its own until its number of elements is
//! known. So no more than a few of them are in that queue until then, and others wait for them in
//! another one.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use pando_sync::thread::Builder;
use pando_sync::time::{Duration, now, unix_ms};
use pando_sync::{Arc, Condvar, Mutex, Rank};
use pandodb::{Error, Lsn};

use crate::data::keyspace::RowError;
use crate::data::shown_rows::{Broken, Request, Shows};
use crate::log::Limit;

/// Replies that are sorted at a time, at most.
const SORTED_MAX: usize = 4;
/// So many may wait for that before it is looked whether somebody waits for them.
const WAITING_MAX: usize = 64;

/// How long a thread without work waits for some.
const IDLE: Duration = Duration::from_secs(2);

/// The threads.
#[derive(Debug)]
pub(crate) struct RowReaders {
    pool: Mutex<Pool>,
    wanted: Condvar,
    threads_max: usize,
    /// Of lines about replies that are cut off.
    log_limit: Limit,
}

#[derive(Debug, Default)]
struct Pool {
    queue: VecDeque<Arc<RowReply>>,
    /// Those that are sorted, or are in the queue to be, and those that wait until they may be.
    sorted: usize,
    to_be_sorted: VecDeque<Arc<RowReply>>,
    /// Number of those that wait at which those are dropped that nobody waits for.
    waiting_max: usize,
    threads: usize,
    /// Those of them that wait for work.
    idle: usize,
}

impl Pool {
    /// Has a reply wait until it may be sorted. Returns others that nobody waits for: those of
    /// clients that are gone may be many before their turn comes.
    fn wait_to_be_sorted(&mut self, reply: &Arc<RowReply>) -> VecDeque<Arc<RowReply>> {
        let mut gone = VecDeque::new();
        if self.to_be_sorted.len() >= self.waiting_max {
            let all = std::mem::take(&mut self.to_be_sorted).into_iter();
            (self.to_be_sorted, gone) = all.partition(|reply| Arc::strong_count(reply) > 1);
            self.waiting_max = (2 * self.to_be_sorted.len()).max(WAITING_MAX);
        }
        self.to_be_sorted.push_back(reply.clone());
        gone
    }
}

/// A reply that is being read.
#[derive(Debug)]
struct RowReply {
    state: Mutex<State>,
    /// Bytes of a piece, about.
    piece_bytes: usize,
}

#[derive(Debug)]
struct State {
    work: Work,
    /// It is one of the replies that are sorted.
    is_sorted: bool,
    begun: Option<Begun>,
    /// What was read last and is not taken yet.
    piece: Vec<u8>,
    /// Who is woken when something has come of it.
    waker: Waker,
    /// Nobody wants it any more.
    is_left: bool,
}

/// A reply that somebody wants. Once this is dropped, nothing more is read for it, and a thread
/// drops what there is: the end of a long file takes its time.
#[derive(Debug)]
pub(crate) struct WantedReply {
    reply: Arc<RowReply>,
    readers: Arc<RowReaders>,
}

impl State {
    /// Has a reply that rests wait for a thread. Returns false if it does not rest.
    fn goes_on(&mut self) -> bool {
        match std::mem::replace(&mut self.work, Work::UnderWay) {
            Work::Rests(rows) => {
                self.work = Work::Next(rows);
                true
            }
            work => {
                self.work = work;
                false
            }
        }
    }
}

/// A reply whose moment is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    /// Number of elements.
    pub(crate) count: usize,
    /// It shows the commits up to this one.
    pub(crate) lsn: Lsn,
}

/// What is done for a reply.
#[derive(Debug)]
enum Work {
    /// It waits for a thread, to begin.
    First(Box<dyn Request>),
    /// It waits for a thread, to go on counting.
    Counts(Box<dyn Shows>),
    /// It waits for a thread, to go on.
    Next(Box<dyn Shows>),
    /// Nobody has asked for the next piece.
    Rests(Box<dyn Shows>),
    /// A thread is at it.
    UnderWay,
    /// All was read.
    Done,
    /// There is no such collection at the moment of the reply, or that has ended at once.
    Changed,
    Failed(Failure),
}

impl Work {
    /// What comes of a reply of which nothing was sent: the command looks again if only the moment
    /// has ended, or if there is no memory for one.
    fn not_begun(failure: Failure) -> Self {
        match failure {
            Failure::Engine(Error::SnapshotEnded | Error::Full { .. }) => Self::Changed,
            failure => Self::Failed(failure),
        }
    }
}

/// Why a reply cannot be read.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    Engine(Error),
    /// A row cannot be decoded, or rows are missing.
    Row(RowError),
    /// The thread that was to read it, for one.
    Text(String),
    /// The command refuses what it has found, with this error.
    Refused(String),
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Engine(error) => Self::Engine(error),
            Broken::Row(error) => Self::Row(error),
            Broken::Text(text) => Self::Text(text),
            Broken::Refused(text) => Self::Refused(text),
        }
    }
}

/// What has come of the beginning of a reply.
pub(crate) enum Beginning {
    UnderWay,
    Begun(Begun),
    /// There is no such collection: the command has to look again.
    Changed,
}

impl WantedReply {
    /// Returns what has come of the beginning; `waker` is woken if that is not known yet.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn beginning(&self, waker: &Waker) -> Result<Beginning, Failure> {
        let mut state = self.reply.state.lock();
        if let Some(begun) = state.begun {
            return Ok(Beginning::Begun(begun));
        }
        match &state.work {
            Work::Changed => Ok(Beginning::Changed),
            Work::Failed(failure) => Err(failure.clone()),
            _ => {
                state.waker.clone_from(waker);
                Ok(Beginning::UnderWay)
            }
        }
    }

    /// Gives `piece`, which is not needed any more, for the next one, if that was read, and returns
    /// whether it is the last one; then more is read in advance. Else `waker` is woken when it was.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn take(&self, piece: &mut Vec<u8>, waker: &Waker) -> Result<Option<bool>, Failure> {
        let mut state = self.reply.state.lock();
        if state.piece.is_empty() {
            if let Work::Failed(failure) = &state.work {
                return Err(failure.clone());
            }
            state.waker.clone_from(waker);
            return Ok(None);
        }
        piece.clear();
        std::mem::swap(&mut state.piece, piece);
        if !state.goes_on() {
            return Ok(Some(matches!(state.work, Work::Done)));
        }
        drop(state);
        self.readers.push(&self.reply, false);
        Ok(Some(false))
    }
}

impl Drop for WantedReply {
    fn drop(&mut self) {
        let rests = {
            let mut state = self.reply.state.lock();
            state.is_left = true;
            state.goes_on()
        };
        if rests {
            self.readers.push(&self.reply, false);
        }
    }
}

impl RowReply {
    /// Reads a piece. Returns true if that was not enough for one, or for the count.
    fn turn(&self, log_limit: &Limit) -> bool {
        let mut end = WorkEnd {
            reply: self,
            work: None,
            begun: None,
            piece: Vec::new(),
        };
        let work = {
            let mut state = self.state.lock();
            if state.is_left {
                end.work = Some(std::mem::replace(&mut state.work, Work::UnderWay));
                return false;
            }
            end.piece = std::mem::take(&mut state.piece);
            end.begun = state.begun;
            std::mem::replace(&mut state.work, Work::UnderWay)
        };
        let had_begun = end.begun.is_some();
        let work = end.turn(work).unwrap_or_else(|broken| {
            if !had_begun {
                (end.begun, end.piece) = (None, Vec::new());
                return Work::not_begun(broken.into());
            }
            // The client sees nothing but the end of its connection.
            if let Some(left_out) = log_limit.admit(unix_ms()) {
                let message = "a reply with a large collection is cut off";
                tracing::warn!(?broken, left_out, message);
            }
            Work::Failed(broken.into())
        });
        let goes_on = matches!(work, Work::Counts(_) | Work::Next(_));
        end.work = Some(work);
        goes_on
    }
}

impl RowReply {
    /// Returns true if it was one of the replies that are sorted, and is not any more.
    fn has_been_sorted(&self) -> bool {
        let mut state = self.state.lock();
        let is_over = !matches!(state.work, Work::First(_) | Work::Counts(_));
        is_over && std::mem::replace(&mut state.is_sorted, false)
    }
}

impl WorkEnd<'_> {
    /// Makes a turn, and returns what is to be done next.
    fn turn(&mut self, work: Work) -> Result<Work, Broken> {
        let mut shows = match work {
            Work::First(request) => match request.begin()? {
                Some(shows) => shows,
                None => return Ok(Work::Changed),
            },
            Work::Counts(shows) | Work::Next(shows) => shows,
            other => return Ok(other),
        };
        if self.begun.is_none() {
            let Some(count) = shows.count()? else {
                return Ok(Work::Counts(shows));
            };
            let lsn = shows.lsn();
            self.begun = Some(Begun { count, lsn });
            if count == 0 || shows.is_count() {
                return Ok(Work::Done);
            }
        }
        let goes_on = shows.fill(&mut self.piece, self.reply.piece_bytes)?;
        if goes_on {
            return Ok(match self.piece.is_empty() {
                true => Work::Next(shows),
                false => Work::Rests(shows),
            });
        }
        // The line end that follows the reply in the output.
        self.piece.truncate(self.piece.len() - 2);
        Ok(Work::Done)
    }
}

/// Stores what has come of a turn when it is dropped, also by a panic: nobody waits for ever.
struct WorkEnd<'r> {
    reply: &'r RowReply,
    work: Option<Work>,
    begun: Option<Begun>,
    piece: Vec<u8>,
}

impl Drop for WorkEnd<'_> {
    fn drop(&mut self) {
        let panicked = || Work::Failed(Failure::Text("the thread has panicked".to_owned()));
        let waker = {
            let mut state = self.reply.state.lock();
            if state.is_left {
                // What there is is dropped with this, outside of the lock.
                state.work = Work::Done;
                return;
            }
            // A reply whose first piece was not made has not begun.
            let begun = self.begun.filter(|_| self.work.is_some());
            state.work = self.work.take().unwrap_or_else(panicked);
            state.begun = state.begun.or(begun);
            state.piece = std::mem::take(&mut self.piece);
            state.waker.clone()
        };
        waker.wake();
    }
}

impl RowReaders {
    /// Returns none yet: at most `threads_max` are started.
    pub(crate) fn new(threads_max: usize) -> Arc<Self> {
        Arc::new(Self {
            pool: Mutex::new(Rank::Leaf, Pool::default()),
            wanted: Condvar::new(),
            threads_max: threads_max.max(1),
            log_limit: Limit::default(),
        })
    }

    /// Has a thread begin a reply, which is read in pieces of about `piece_bytes` bytes. `waker` is
    /// woken when it has.
    pub(crate) fn begin(
        self: &Arc<Self>,
        request: Box<dyn Request>,
        piece_bytes: usize,
        waker: &Waker,
    ) -> WantedReply {
        let is_sorted = request.sorts();
        let state = State {
            work: Work::First(request),
            is_sorted,
            begun: None,
            piece: Vec::new(),
            waker: waker.clone(),
            is_left: false,
        };
        let reply = Arc::new(RowReply {
            piece_bytes,
            state: Mutex::new(Rank::Leaf, state),
        });
        self.push(&reply, is_sorted);
        let readers = self.clone();
        WantedReply { reply, readers }
    }

    /// Has a reply that waits be sorted, instead of one that is not any more.
    fn ends_to_sort(&self) {
        let mut pool = self.pool.lock();
        match pool.to_be_sorted.pop_front() {
            Some(next) => pool.queue.push_back(next),
            None => pool.sorted -= 1,
        }
    }

    /// Lets others have their turn before this thread, or another one, goes on with a reply.
    fn push_back(&self, reply: Arc<RowReply>) {
        self.pool.lock().queue.push_back(reply);
        self.wanted.notify_one();
    }

    /// Has a reply wait for a thread. One that begins to be sorted is counted; if there are as many
    /// as may be, it waits for that before.
    fn push(self: &Arc<Self>, reply: &Arc<RowReply>, begins_to_sort: bool) {
        // Dropped outside of the lock.
        let _gone;
        {
            let mut pool = self.pool.lock();
            if begins_to_sort && pool.sorted == SORTED_MAX {
                _gone = pool.wait_to_be_sorted(reply);
                return;
            }
            pool.sorted += usize::from(begins_to_sort);
            pool.queue.push_back(reply.clone());
            // Those that wait may have been woken for the replies before it.
            if pool.queue.len() <= pool.idle || pool.threads == self.threads_max {
                drop(pool);
                self.wanted.notify_one();
                return;
            }
            pool.threads += 1;
        }
        let readers = self.clone();
        let builder = Builder::new().name("pando-read-rows".to_owned());
        if let Err(error) = builder.spawn(move || readers.run()) {
            self.cannot_start(&error);
        }
    }

    /// Ends a thread that was not started; if there are no others, replies end with the error.
    #[cold]
    fn cannot_start(&self, error: &std::io::Error) {
        let left = {
            let mut pool = self.pool.lock();
            pool.threads -= 1;
            match pool.threads {
                0 => {
                    pool.sorted = 0;
                    let mut left = std::mem::take(&mut pool.queue);
                    left.append(&mut pool.to_be_sorted);
                    left
                }
                _ => VecDeque::new(),
            }
        };
        for reply in left {
            let failure = Failure::Text(format!("cannot start a thread: {error}"));
            let _end = WorkEnd {
                reply: &reply,
                work: Some(Work::Failed(failure)),
                begun: None,
                piece: Vec::new(),
            };
        }
    }

    /// What a thread does.
    fn run(&self) {
        let mut counted = Counted(Some(self));
        while let Some(reply) = self.next() {
            // A panic is the end of this reply, and of no other.
            let turn = || reply.turn(&self.log_limit);
            let goes_on = catch_unwind(AssertUnwindSafe(turn)).unwrap_or(false);
            if reply.has_been_sorted() {
                self.ends_to_sort();
            }
            if goes_on {
                self.push_back(reply);
            }
        }
        // Not any more, since `next` returned none.
        counted.0 = None;
    }

    /// Waits for work. Returns none if there was none for a while: then this thread does not count
    /// any more, so that whoever brings work from now on starts another one.
    fn next(&self) -> Option<Arc<RowReply>> {
        let mut pool = self.pool.lock();
        let mut is_late = false;
        loop {
            if let Some(reply) = pool.queue.pop_front() {
                return Some(reply);
            }
            if is_late {
                pool.threads -= 1;
                return None;
            }
            pool.idle += 1;
            let began = now();
            pool = self.wanted.wait_timeout(pool, IDLE);
            pool.idle -= 1;
            is_late = began.elapsed() >= IDLE;
        }
    }
}

/// Counts a thread until it ends, also by a panic.
struct Counted<'r>(Option<&'r RowReaders>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(readers) = self.0 {
            readers.pool.lock().threads -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A thread that was woken for one reply, and does not run yet, is none for the next one.
    #[test]
    fn each_reply_that_waits_has_a_thread() {
        let readers = RowReaders::new(2);
        {
            let mut pool = readers.pool.lock();
            (pool.threads, pool.idle) = (1, 1);
        }
        for threads in [1, 2] {
            let state = State {
                work: Work::Done,
                is_sorted: false,
                begun: None,
                piece: Vec::new(),
                waker: Waker::noop().clone(),
                is_left: false,
            };
            let reply = RowReply {
                state: Mutex::new(Rank::Leaf, state),
                piece_bytes: 1,
            };
            readers.push(&Arc::new(reply), false);
            assert_eq!(readers.pool.lock().threads, threads);
        }
    }

    /// What a test has threads do.
    #[derive(Debug, Clone)]
    struct Planted {
        /// It is counted on and on.
        counts: Arc<AtomicBool>,
        panics: bool,
    }

    impl Planted {
        fn new(panics: bool) -> Self {
            let counts = Arc::default();
            Self { counts, panics }
        }
    }

    impl Request for Planted {
        fn sorts(&self) -> bool {
            true
        }

        fn begin(&self) -> Result<Option<Box<dyn Shows>>, Broken> {
            Ok(Some(Box::new(self.clone())))
        }
    }

    impl Shows for Planted {
        fn lsn(&self) -> Lsn {
            Lsn(1)
        }

        fn count(&mut self) -> Result<Option<usize>, Broken> {
            Ok((!self.counts.load(Ordering::Relaxed)).then_some(1))
        }

        fn fill(&mut self, piece: &mut Vec<u8>, _: usize) -> Result<bool, Broken> {
            assert!(!self.panics, "planted");
            piece.extend_from_slice(b"+1\r\n");
            Ok(false)
        }
    }

    /// Waits until a thread has begun a reply, or cannot.
    fn begun(reply: &WantedReply) -> Result<Begun, Failure> {
        loop {
            match reply.beginning(Waker::noop())? {
                Beginning::Begun(begun) => return Ok(begun),
                Beginning::UnderWay => pando_sync::thread::yield_now(),
                Beginning::Changed => panic!("nothing has changed"),
            }
        }
    }

    /// The first line is not sent before there is a first piece.
    #[test]
    fn a_reply_whose_first_piece_panics_is_an_error() {
        let readers = RowReaders::new(1);
        let begin = |panics| readers.begin(Box::new(Planted::new(panics)), 1, Waker::noop());
        let failed = begun(&begin(true));
        assert!(matches!(failed, Err(Failure::Text(_))), "{failed:?}");
        assert_eq!(begun(&begin(false)).unwrap().count, 1);
    }

    /// Clients may come, ask and go as often as they like while others are sorted for.
    #[test]
    fn replies_that_nobody_waits_for_are_dropped() {
        let readers = RowReaders::new(1);
        let planted = Planted::new(false);
        let begin = || readers.begin(Box::new(planted.clone()), 1, Waker::noop());
        planted.counts.store(true, Ordering::Relaxed);
        let wanted: Vec<_> = (0..SORTED_MAX + 100).map(|_| begin()).collect();
        (0..10_000).for_each(|_| drop(begin()));
        let waiting = readers.pool.lock().to_be_sorted.len();
        assert!(waiting < 300, "{waiting} wait");
        planted.counts.store(false, Ordering::Relaxed);
        for reply in &wanted {
            assert_eq!(begun(reply).unwrap().count, 1);
        }
    }

    /// A reply that has lost its moment before it has begun is none of the client's business.
    #[test]
    fn what_has_not_begun_is_looked_for_again() {
        let full = Error::Full { what: "it".into() };
        for error in [Error::SnapshotEnded, full] {
            let work = Work::not_begun(Failure::Engine(error));
            assert!(matches!(work, Work::Changed), "{work:?}");
        }
        for failure in [
            Failure::Engine(Error::Closed),
            Failure::Row(RowError::Damaged),
        ] {
            let work = Work::not_begun(failure);
            assert!(matches!(work, Work::Failed(_)), "{work:?}");
        }
    }
}
