//! The thread that asks the server, so that the screen never waits for the server.

use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pando_sync::{Arc, Mutex, Rank};

use super::connection::{Connection, Trouble};
use super::sample::{SECTIONS, Sample};
use crate::target::Target;

/// A server that is asked repeatedly, and reconnected to after its connection was lost.
pub(crate) struct Asker {
    target: Target,
    connection: Option<Connection>,
}

impl Asker {
    /// Connects to nothing yet.
    pub(crate) fn new(target: Target) -> Self {
        let connection = None;
        Self { target, connection }
    }

    /// Returns the current sample. Blocks for a few seconds at most.
    ///
    /// # Errors
    /// The server does not answer; the next call connects again.
    pub(crate) fn ask(&mut self) -> Result<Sample, Trouble> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.target)?,
        };
        let text = connection.ask(SECTIONS)?;
        let sample = Sample::parse(&text, now())?;
        self.connection = Some(connection);
        Ok(sample)
    }
}

/// The newest answers.
#[derive(Default)]
pub(crate) struct Seen {
    /// Incremented by each attempt, whether it was answered or not.
    pub(crate) round: u64,
    /// `None` until the first answer; kept while later attempts fail.
    pub(crate) newest: Option<Arc<Sample>>,
    /// The answer before `newest`, perhaps much older.
    pub(crate) before: Option<Arc<Sample>>,
    /// Why there is no newer sample.
    pub(crate) trouble: Option<Trouble>,
}

/// Asks every `interval` until the process ends; the caller reads the answers from what it returns.
///
/// # Errors
/// The thread does not start.
pub(crate) fn watch(target: Target, interval: Duration) -> std::io::Result<Arc<Mutex<Seen>>> {
    let seen = Arc::new(Mutex::new(Rank::Leaf, Seen::default()));
    let shared = seen.clone();
    let run = move || {
        let mut asker = Asker::new(target);
        loop {
            let begun = now();
            let answer = asker.ask();
            shared.lock().add(answer);
            thread::sleep(interval.saturating_sub(begun.elapsed()));
        }
    };
    let named = thread::Builder::new().name("pando-top".to_owned());
    // The thread may wait long for the server, so it is never joined.
    drop(named.spawn(run)?);
    Ok(seen)
}

impl Seen {
    fn add(&mut self, answer: Result<Sample, Trouble>) {
        self.round += 1;
        match answer {
            Ok(sample) => {
                self.before = self.newest.replace(Arc::new(sample));
                self.trouble = None;
            }
            Err(trouble) => self.trouble = Some(trouble),
        }
    }
}
