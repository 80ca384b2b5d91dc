//! One thread of a workload: its tables, its records, and what it does next.

use pando_device::faulty::Random;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Arc, Mutex};
use pandodb::{Db, Durability, Error, Snapshot, Table, ValueStream, WriteOptions, weight_byte};

use crate::failure::{Failure, Unread};
use crate::history::{History, Step};
use crate::kind::options_of;
use crate::order::{Look, Seat};
use crate::state::{Effect, Place, State, own_table, shared_table};
use crate::store::is_durable_by_default;
use crate::workload::plan::Plan;

/// Number of tables of each thread, and of tables that all threads share.
pub(super) const OWN_TABLES: usize = 3;
const SHARED_TABLES: usize = 2;
/// Longest value of a workload.
pub(super) const VALUE_BYTES_MAX: usize = 30_000;

#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) clock: AtomicU64,
    pub(super) synced: Mutex<Vec<u64>>,
}

impl Shared {
    pub(super) fn stamp(&self) -> u64 {
        // AcqRel: stamps order calls of different threads.
        self.clock.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// Why a thread stops.
pub(super) enum Stop {
    Error(Error),
    Failure(Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Unread> for Stop {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Error(error) => Self::Error(error),
            Unread::Wrong(failure) => Self::Failure(failure),
        }
    }
}

pub(super) type OrStop<T> = Result<T, Stop>;

pub(super) fn wrong<T>(what: String) -> OrStop<T> {
    Err(Stop::Failure(Failure::new(what)))
}

/// One thread of a workload.
pub(super) struct Worker {
    pub(super) db: Db,
    pub(super) plan: Plan,
    pub(super) random: Random,
    /// Decides the steps beside the usual ones.
    pub(super) beside: Random,
    pub(super) history: History,
    pub(super) shared: Arc<Shared>,
    pub(super) tables: Vec<Table>,
    pub(super) written: u64,
    pub(super) refused: usize,
    /// A value that was opened some steps ago, and its expected contents.
    pub(super) reader: Option<(ValueStream, Vec<u8>)>,
    /// A snapshot that began some steps ago, and what this thread had then.
    pub(super) snapshot: Option<(Snapshot, State)>,
    pub(super) seat: Option<Seat>,
    /// Commits that have read what others committed, and the number of the one without an outcome.
    pub(super) looks: Vec<Look>,
    pub(super) unknown: Option<u64>,
}

impl Worker {
    pub(super) fn new(db: Db, plan: Plan, history: History, shared: &Arc<Shared>) -> Self {
        Self {
            db,
            plan,
            random: Random::new(plan.seed).part(plan.round * 1000 + 100 + history.thread as u64),
            beside: Random::new(plan.seed).part(plan.round * 1000 + 600 + history.thread as u64),
            history,
            shared: shared.clone(),
            tables: Vec::new(),
            written: 0,
            refused: 0,
            reader: None,
            snapshot: None,
            seat: None,
            looks: Vec::new(),
            unknown: None,
        }
    }

    pub(super) fn work(mut self, steps: usize) -> (Self, OrStop<()>) {
        let end = self.open_tables().and_then(|()| {
            for _ in 0..steps {
                match self.step() {
                    Err(Stop::Error(Error::Full { .. })) => self.refused += 1,
                    other => other?,
                }
            }
            Ok(())
        });
        self.tables.clear();
        self.reader = None;
        self.snapshot = None;
        self.seat = None;
        (self, end)
    }

    pub(super) fn open_tables(&mut self) -> OrStop<()> {
        for number in 0..OWN_TABLES {
            let name = own_table(self.history.thread, number);
            self.create(name)?;
        }
        for number in 0..SHARED_TABLES {
            // Threads race to create it.
            let name = shared_table(number);
            let options = options_of(self.plan.seed, &name);
            self.tables.push(self.db.table_with(&name, options)?);
        }
        Ok(())
    }

    /// Creates a table of this thread, or finds it.
    pub(super) fn create(&mut self, name: String) -> OrStop<()> {
        let durable = self.default_is_durable() && !self.history.now().tables().contains(&name);
        let db = self.db.clone();
        let effects = vec![Effect::Create(name.clone())];
        let options = options_of(self.plan.seed, &name);
        let table = self.commit(effects, durable, || db.table_with(&name, options))?;
        match self.tables.iter_mut().find(|known| known.name() == name) {
            Some(known) => *known = table,
            None => self.tables.push(table),
        }
        Ok(())
    }

    pub(super) fn default_is_durable(&self) -> bool {
        is_durable_by_default(self.plan.seed)
    }

    /// Records a commit around the call that makes it.
    pub(super) fn commit<T>(
        &mut self,
        effects: Vec<Effect>,
        durable: bool,
        call: impl FnOnce() -> pandodb::Result<T>,
    ) -> OrStop<T> {
        let start = self.shared.stamp();
        let result = call();
        let step = Step {
            effects,
            start,
            end: result.is_ok().then(|| self.shared.stamp()),
            durable: durable && result.is_ok(),
        };
        match &result {
            // `Full` promises that nothing was written.
            Err(Error::Full { .. }) => {}
            _ => self.history.push(step),
        }
        Ok(result?)
    }

    pub(super) fn step(&mut self) -> OrStop<()> {
        let name = own_table(self.history.thread, 2);
        if !self.history.now().tables().contains(&name) {
            // A full disk has refused to create it again.
            self.create(name)?;
        }
        self.beside()?;
        match self.random.below(100) {
            0..30 => self.put(),
            30..36 => self.look(),
            36..48 => self.delete(),
            48..56 => self.update(),
            56..70 => self.batch(),
            70..76 => self.edit(),
            76..79 => self.read_slowly(),
            79..83 => self.get(),
            83..86 => self.read_at_snapshot(),
            86..90 => self.scan(),
            90..93 => self.checkpoint(),
            93..95 => self.flush(),
            95 => self.clear(),
            96 => self.load(),
            97 => self.drop_table(),
            98 => self.compact(),
            99 if self.random.once_in(2) => self.swap(),
            _ => {
                self.db.request_checkpoint();
                Ok(())
            }
        }
    }

    pub(super) fn table(&mut self) -> Table {
        self.tables[self.random.index(self.tables.len())].clone()
    }

    pub(super) fn key(&mut self, table: &Table) -> Place {
        let number = self.random.below(self.plan.keys);
        let thread = self.history.thread;
        let key = match number % 10 {
            0 => format!("{}{number}-{thread}", "long".repeat(40)),
            1 => format!("{number}{thread}"),
            _ => format!("key{number:05}-{thread}"),
        };
        (table.name().to_owned(), key.into_bytes())
    }

    /// Values name their writer, so that no two are alike. Most begin with a weight.
    pub(super) fn value(&mut self) -> Vec<u8> {
        let bytes = match self.random.below(24) {
            0 => self.random.below(VALUE_BYTES_MAX as u64),
            1 => self.random.below(6000),
            2 => 0,
            _ => self.random.below(500),
        };
        self.written += 1;
        let stamp = format!("{}/{}/", self.history.thread, self.written);
        // Not drawn at random, so that the other choices of a seed do not change.
        let weight = self.written.to_le_bytes()[0] % 128;
        let first = (!self.written.is_multiple_of(3)).then(|| weight_byte(weight));
        first
            .into_iter()
            .chain(stamp.bytes())
            .cycle()
            .take(usize::try_from(bytes).expect("short values"))
            .collect()
    }

    pub(super) fn durability(&mut self) -> (WriteOptions, bool) {
        match self.random.below(8) {
            0 => (WriteOptions::durability(Durability::Durable), true),
            1 => (WriteOptions::durability(Durability::Periodic), false),
            2 => (WriteOptions::default(), self.default_is_durable()),
            _ => (WriteOptions::durability(Durability::None), false),
        }
    }
}
