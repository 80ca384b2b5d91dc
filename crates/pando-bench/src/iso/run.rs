//! A whole run of `bench iso`.

use pando_stats::Ticker;
use pando_sync::CachePadded;
use pandodb::Table;

use super::levels::Transactions;
use super::options::{IsoOptions, IsoVariant};
use super::snapshots;
use crate::ablation::middle_of;
use crate::error::Result;
use crate::kv::{self, Plainly};
use crate::operations::KvPlan;
use crate::options::{KvOptions, Workload};
use crate::phase::Observer;
use crate::record::Record;
use crate::store::Store;
use crate::values::Values;

/// Fills a store, or reads all of an existing one, and measures both variants with each number of
/// threads, round by round; reports the median rounds to `observer` at the end.
///
/// # Errors
/// Options that make no sense, errors of the engine, and reads that return something other than
/// what was written; the run ends there.
pub fn run(options: &IsoOptions, observer: &mut dyn Observer) -> Result<()> {
    options.check()?;
    let once = options.once();
    let store = Store::open(&once)?;
    let values = Values::sized(once.value_sizes, once.value_compress, once.seed);
    let first = match once.use_existing_db {
        true => Workload::ReadSeq,
        false => Workload::FillSeq,
    };
    kv::run_one(&once, first, &store, &values, &Plainly, observer)?;
    let mut turns = Turns::new(options);
    for round in 0..options.rounds {
        for turn in turns.of_round(round) {
            let kv = options.turn(turn.threads, turn.variant);
            let record = run_one(&kv, turn.variant, &store, &values, observer)?;
            if record.hits_per_op.is_some_and(|hits| hits < 1.0) {
                let more = "a larger --max-memory answers all of them";
                observer.note(&format!("some reads went to the device: {more}"));
            }
            turn.rounds.push(record);
        }
    }
    for record in turns.medians() {
        observer.record(&record)?;
    }
    store.close()
}

/// A variant with a number of threads.
struct Turn {
    threads: usize,
    variant: IsoVariant,
    /// The one that it is compared with.
    first: Option<IsoVariant>,
    /// The record of each round.
    rounds: Vec<Record>,
}

/// All turns, in the order in which they are reported.
struct Turns {
    turns: Vec<Turn>,
}

impl Turns {
    fn new(options: &IsoOptions) -> Self {
        let variants = options.variants();
        let of = |threads: &usize| {
            let threads = *threads;
            variants.clone().into_iter().map(move |variant| Turn {
                threads,
                variant,
                first: options.first_of(variant),
                rounds: Vec::new(),
            })
        };
        Self {
            turns: options.threads.iter().flat_map(of).collect(),
        }
    }

    /// Returns all turns once. Every second round goes backwards, so that a slow change of the
    /// machine affects all of them alike.
    fn of_round(&mut self, round: usize) -> Box<dyn Iterator<Item = &mut Turn> + '_> {
        match round % 2 {
            0 => Box::new(self.turns.iter_mut()),
            _ => Box::new(self.turns.iter_mut().rev()),
        }
    }

    /// Returns, of each turn, the round of median speed, with the figures that summarize all
    /// rounds.
    fn medians(&self) -> Vec<Record> {
        let rates = |turn: &Turn| -> Vec<f64> {
            let rounds = turn.rounds.iter();
            rounds.map(|record| record.ops_per_s).collect()
        };
        let median = |turn: &Turn| {
            let all = rates(turn);
            let mut record = turn.rounds[middle_of(&all)].clone();
            record.rounds = Some(all.len());
            record.ops_per_s_min = all.iter().copied().reduce(f64::min);
            record.ops_per_s_max = all.iter().copied().reduce(f64::max);
            let times_of = |other: &Turn| {
                let pairs = all.iter().zip(rates(other));
                let times: Vec<f64> = pairs.map(|(own, other)| own / other.max(1e-9)).collect();
                times[middle_of(&times)]
            };
            let is_one = |other: &&Turn| other.threads == 1 && other.variant == turn.variant;
            record.speed_to_one_thread = self.turns.iter().find(is_one).map(times_of);
            let is_first =
                |other: &&Turn| other.threads == turn.threads && Some(other.variant) == turn.first;
            let to_first = self.turns.iter().find(is_first).map(times_of);
            match turn.variant {
                IsoVariant::Snapshots { .. } => record.speed_to_first_variant = to_first,
                _ => record.speed_to_first_level = to_first,
            }
            record
        };
        self.turns.iter().map(median).collect()
    }
}

fn run_one(
    options: &KvOptions,
    variant: IsoVariant,
    store: &Store,
    values: &Values,
    observer: &mut dyn Observer,
) -> Result<Record> {
    let own: Vec<CachePadded<Table>> = match variant {
        IsoVariant::OwnHandle => (0..options.threads)
            .map(|_| store.handle().map(CachePadded))
            .collect::<Result<_>>()?,
        _ => Vec::new(),
    };
    let plan = |table| {
        let plan = KvPlan::new(options, variant.workload(), table, values, options.num);
        CachePadded(plan)
    };
    let plans: Vec<_> = match variant {
        IsoVariant::OwnHandle => own.iter().map(|table| plan(table)).collect(),
        _ => vec![plan(&store.table)],
    };
    let mut record = match variant {
        IsoVariant::OwnHandle | IsoVariant::SharedHandle => {
            kv::measure(&plans, store, &Plainly, observer)?
        }
        IsoVariant::Transactions { level, ops, writes } => {
            let before = store.db.statistics();
            let way = Transactions { level, ops, writes };
            let mut record = kv::measure(&plans, store, &way, observer)?;
            let counted = store.db.statistics().since(&before);
            record.workload = Workload::Transactions.name();
            record.ops_per_transaction = Some(ops);
            record.writes_percent = Some(writes);
            let commits = counted.get(Ticker::Commits).max(1) as f64;
            let conflicts = counted.get(Ticker::CommitConflicts) as f64;
            record.conflicts_per_commit = Some(conflicts / commits);
            record
        }
        IsoVariant::Snapshots { kind, .. } => {
            snapshots::forget(store)?;
            // That of a settled snapshot is one, too: all turns begin with clean pages.
            store.db.checkpoint()?;
            let turn = snapshots::Turn::begin(&plans[0], kind)?;
            let (mut record, seen) = turn.during(|| kv::measure(&plans, store, &turn, observer))?;
            record.snapshot_renewals = Some(seen.renewals);
            record.old_version_bytes_max = Some(seen.old_version_bytes_max);
            record.settled_snapshots_max = Some(seen.settled);
            record.held_bytes_max = Some(seen.held_bytes_max);
            record
        }
    };
    record.variant = variant.name();
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::{IsoOptions, IsoVariant, Turns};
    use crate::record::Record;

    /// The order of turns is reversed in every other round, and ratios are medians of the ratios
    /// within a round.
    #[test]
    fn rounds_go_to_and_fro_and_medians_are_of_what_a_round_says() {
        let options = IsoOptions {
            threads: vec![2, 1],
            ..IsoOptions::default()
        };
        let mut turns = Turns::new(&options);
        // Rates of each round in the order of the report: two threads with own handles and with a
        // shared handle, then one thread with each.
        let rates = [
            [10.0, 20.0, 8.0, 10.0],
            [30.0, 50.0, 10.0, 40.0],
            [20.0, 40.0, 20.0, 20.0],
        ];
        let mut order = Vec::new();
        for (round, rates) in rates.iter().enumerate() {
            for turn in turns.of_round(round) {
                let at = match turn.threads {
                    2 => 0,
                    _ => 2,
                } + usize::from(turn.variant == IsoVariant::SharedHandle);
                order.push(at);
                let mut record = Record::new("readrandom", "?", turn.threads, 1);
                record.ops_per_s = rates[at];
                turn.rounds.push(record);
            }
        }
        assert_eq!(order, [0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3]);
        let records = turns.medians();
        let speeds: Vec<_> = records.iter().map(|one| one.ops_per_s).collect();
        assert_eq!(speeds, [20.0, 40.0, 10.0, 20.0]);
        let times: Vec<_> = records.iter().map(|one| one.speed_to_one_thread).collect();
        assert_eq!(times, [Some(1.25), Some(2.0), Some(1.0), Some(1.0)]);
        assert_eq!(
            (records[0].ops_per_s_min, records[0].ops_per_s_max),
            (Some(10.0), Some(30.0))
        );
        assert_eq!(records[0].rounds, Some(3));
    }
}
