//! The exact check where LSNs are known: each read is compared with the state that all commits up
//! to one LSN have made.
//!
//! A key is compared if all who wrote it, and may be committed, have an LSN. A read must be of the
//! state at its transaction's snapshot. A serializable one that wrote has read nothing that was
//! changed before its commit, so its reads are of the state right before that, too.

use super::anomaly::{Anomaly, Kind};
use super::history::{Level, Outcome};
use super::index::Index;
use super::reads::{Observation, Seen, of_read, show};

/// The commits of one key, in their order.
struct Replay {
    is_list: bool,
    /// LSN and value; of a list each element.
    commits: Vec<(u64, Option<u64>)>,
}

impl Replay {
    /// Returns none if it is not known who wrote the key when.
    fn new(index: &Index<'_>, key: usize) -> Option<Self> {
        let writes = &index.keys[key];
        let mut commits = Vec::with_capacity(writes.all.len());
        for write in &writes.all {
            let transaction = &index.transactions[write.transaction];
            if transaction.outcome == Outcome::Aborted || (write.is_intermediate && !writes.is_list)
            {
                continue;
            }
            commits.push((transaction.commit_lsn?, write.value));
        }
        // Stable: elements of one transaction stay in its order.
        commits.sort_by_key(|(lsn, _)| *lsn);
        let is_list = writes.is_list;
        Some(Self { is_list, commits })
    }

    /// Returns what is wrong with a read of the state after all commits up to `lsn`.
    fn differs(&self, lsn: u64, seen: Seen<'_>) -> Option<String> {
        let count = self.commits.partition_point(|(it, _)| *it <= lsn);
        let commits = &self.commits[..count];
        match seen {
            Seen::Value(value) => {
                let right = commits.last().and_then(|(_, value)| *value);
                (right != value).then(|| format!("{} instead of {}", show(value), show(right)))
            }
            Seen::List(elements) => {
                debug_assert!(self.is_list);
                let right = commits.iter().filter_map(|(_, value)| *value);
                (!right.clone().eq(elements.iter().copied()))
                    .then(|| format!("{elements:?} instead of {:?}", right.collect::<Vec<_>>()))
            }
        }
    }
}

/// Returns the reads that are of another state than they must be.
pub(super) fn check(index: &Index<'_>, observations: &[Observation<'_>]) -> Vec<Anomaly> {
    let replays: Vec<_> = (0..index.keys.len())
        .map(|key| Replay::new(index, key))
        .collect();
    let mut anomalies = Vec::new();
    for observation in observations {
        let (reader, key) = (observation.transaction, observation.key);
        let Some(replay) = &replays[key] else {
            continue;
        };
        let transaction = &index.transactions[reader];
        let mut compare = |kind, lsn: Option<u64>, place: &str| {
            let lsn = lsn?;
            let differs = replay.differs(lsn, observation.seen)?;
            let text = format!("{differs}, {place} LSN {lsn}");
            anomalies.push(of_read(index, kind, reader, key, &text));
            Some(())
        };
        compare(
            Kind::SnapshotRead,
            transaction.snapshot_lsn,
            "at its snapshot,",
        );
        if index.levels[reader] == Level::Serializable {
            let before = transaction.commit_lsn.map(|lsn| lsn.saturating_sub(1));
            compare(Kind::CommitRead, before, "right before its commit,");
        }
    }
    anomalies
}
