//! From versions to dependencies: ww, wr, rw; and what the order of one key shows by itself, lists
//! that do not fit together and lost updates.

use std::collections::{BTreeMap, HashSet};

use super::anomaly::{Anomaly, Kind};
use super::edge::{Edge, Why};
use super::index::Index;
use super::order::{Order, Version, committed};
use super::reads::{Observation, Seen, of_read};

/// What the versions of all keys say.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    pub(super) edges: Vec<Edge>,
    pub(super) anomalies: Vec<Anomaly>,
    /// Who lost an update of which key.
    pub(super) lost: HashSet<(usize, usize)>,
}

/// Finds them, key by key.
pub(super) fn dependencies(index: &Index<'_>, observations: &[Observation<'_>]) -> Dependencies {
    let mut by_key = vec![Vec::new(); index.keys.len()];
    for observation in observations {
        if index.committed[observation.transaction] {
            by_key[observation.key].push(*observation);
        }
    }
    let mut found = Dependencies::default();
    for (key, reads) in by_key.iter().enumerate() {
        let order = Order::new(index, key, reads);
        found.add_orders(index, key, &order, reads);
        found.add_lost(index, key, &order);
        found.add_writes(key, &order);
        for observation in reads {
            found.add_read(index, &order, observation);
        }
    }
    found
}

impl Dependencies {
    fn edge(&mut self, from: usize, to: usize, why: Why, key: usize) {
        if from != to {
            let edge = Edge { from, to, why, key };
            self.edges.push(edge);
        }
    }

    fn add_writes(&mut self, key: usize, order: &Order<'_>) {
        let chain = (1..order.chain.len()).map(Version::Chain);
        let loose: HashSet<Version> = order.behind.iter().map(|(version, _)| *version).collect();
        let last = Version::Chain(order.chain.len());
        let others = loose
            .into_iter()
            .filter(|it| matches!(it, Version::Loose(_)) || *it == last);
        for version in chain.chain(others) {
            if let Some(writer) = order.writer(version) {
                for next in order.next(version) {
                    self.edge(writer, next, Why::Ww, key);
                }
            }
        }
    }

    fn add_read(&mut self, index: &Index<'_>, order: &Order<'_>, observation: &Observation<'_>) {
        let (reader, key) = (observation.transaction, observation.key);
        let version = order.read(index, observation);
        let seen = match (observation.seen, version) {
            (_, Some(version)) => order.writer(version),
            // No version, or one whose place nobody knows: its writer was seen all the same.
            (Seen::Value(value), None) => value.and_then(|value| {
                let write = index.writer(key, value)?;
                index.committed[write.transaction].then_some(write.transaction)
            }),
            (Seen::List(elements), None) => {
                let last = committed(index, key, elements).last().copied();
                last.map(|at| index.keys[key].all[at].transaction)
            }
        };
        if let Some(writer) = seen {
            self.edge(writer, reader, Why::Wr, key);
        }
        let why = if observation.is_predicate {
            Why::RwPredicate
        } else {
            Why::Rw
        };
        for next in version.into_iter().flat_map(|it| order.next(it)) {
            // Who saw a part of a transaction's appends is told so by G1b.
            if seen != Some(next) {
                self.edge(reader, next, why, key);
            }
        }
    }

    /// Reports the first list that does not fit.
    fn add_orders(
        &mut self,
        index: &Index<'_>,
        key: usize,
        order: &Order<'_>,
        reads: &[Observation<'_>],
    ) {
        for observation in reads {
            let Seen::List(elements) = observation.seen else {
                return;
            };
            let distinct: HashSet<_> = elements.iter().collect();
            let is_repeated = distinct.len() < elements.len();
            if is_repeated || order.shows(&committed(index, key, elements)) {
                continue;
            }
            let all = &index.keys[key].all;
            let chain: Vec<_> = (order.chain.iter())
                .filter_map(|at| all[*at].value)
                .collect();
            let whose = if order.by_lsn { "commits" } else { "others" };
            let text = format!("{elements:?}, where the order of {whose} is {chain:?}");
            let reader = observation.transaction;
            let anomaly = of_read(index, Kind::IncompatibleOrders, reader, key, &text);
            return self.anomalies.push(anomaly);
        }
    }

    fn add_lost(&mut self, index: &Index<'_>, key: usize, order: &Order<'_>) {
        let mut alike: BTreeMap<Version, Vec<(usize, bool)>> = BTreeMap::new();
        for update in &order.updates {
            let is_list = index.keys[key].is_list;
            let between = match (update.read, update.written) {
                (Version::Chain(read), Version::Chain(written)) => read + 1..written,
                (Version::Chain(read), Version::Loose(_)) if is_list => {
                    read + 1..order.chain.len() + 1
                }
                _ => 0..0,
            };
            let others = between.filter_map(|count| order.writer(Version::Chain(count)));
            let other = others.into_iter().find(|it| *it != update.transaction);
            let is_loose = matches!(update.written, Version::Loose(_));
            if let Some(other) = other {
                self.lose(index, key, &[update.transaction], &[other]);
            } else {
                let alike = alike.entry(update.read).or_default();
                alike.push((update.transaction, is_loose));
            }
        }
        for members in alike.into_values() {
            if members.len() > 1 && members.iter().any(|(_, is_loose)| *is_loose) {
                let members: Vec<_> = members.into_iter().map(|(it, _)| it).collect();
                self.lose(index, key, &members, &[]);
            }
        }
    }

    /// Reports that `losers`, or all of them but one, overwrote what they had not seen: the write
    /// of `others`, or of each other.
    fn lose(&mut self, index: &Index<'_>, key: usize, losers: &[usize], others: &[usize]) {
        self.lost.extend(losers.iter().map(|it| (*it, key)));
        let names = |them: &[usize]| {
            let names: Vec<_> = (them.iter())
                .map(|it| format!("T{}", index.id(*it)))
                .collect();
            names.join(", ")
        };
        let key = index.keys[key].key;
        let text = if others.is_empty() {
            let losers = names(losers);
            format!("{losers} read one version of {key}, and each wrote another")
        } else {
            let (losers, others) = (names(losers), names(others));
            format!("{losers} read {key}, and overwrote what {others} wrote since")
        };
        let judged = losers.iter().map(|it| index.levels[*it]).min();
        self.anomalies.push(Anomaly {
            kind: Kind::LostUpdate,
            transactions: (losers.iter().chain(others).map(|it| index.id(*it))).collect(),
            keys: vec![key.clone()],
            judged: judged.expect("somebody lost it"),
            text,
        });
    }
}
