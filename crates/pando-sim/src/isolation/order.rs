//! The versions of one key, in the order that is certain.
//!
//! A **chain** is a sequence of versions whose order is known: of values by the LSNs of their
//! commits; of list elements by LSNs, too, or else by the longest list that was read. What is not
//! in the chain is **loose**, and known only by what it comes after:
//!
//! ```text
//!            absent --> v1 --> v2 --> v3      chain
//!              |               |
//!              v               v
//!              w               w'             loose: first of all; written by who had read v2
//! ```
//!
//! Elements that no list shows were appended after the longest list, so they are loose behind it.

use std::collections::{BTreeSet, HashMap};

use super::index::{Index, Write};
use super::reads::{Observation, Seen};

/// Successors of one version that get edges. Of more, those that ended first are taken: leaving
/// edges out can hide an anomaly, never invent one, and keeps a hot key from being quadratic.
const SUCCESSORS_MAX: usize = 8;

/// A version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Version {
    /// So many of the chain; none: the key that was never there.
    Chain(usize),
    /// A loose write, by its place among all of the key.
    Loose(usize),
}

/// A transaction that read a version of the key and then wrote the key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Update {
    pub(super) transaction: usize,
    pub(super) read: Version,
    /// Its own version; of a list, its first.
    pub(super) written: Version,
}

/// The versions of a key.
#[derive(Debug)]
pub(super) struct Order<'a> {
    all: &'a [Write],
    is_list: bool,
    /// Places among all writes.
    pub(super) chain: Vec<usize>,
    /// The chain has all versions, and stands on LSNs.
    pub(super) by_lsn: bool,
    /// Place in the chain of a write.
    places: HashMap<usize, usize>,
    /// Committed writes outside of the chain.
    loose: Vec<usize>,
    /// Loose versions behind others.
    pub(super) behind: Vec<(Version, usize)>,
    /// Who read the key and wrote it.
    pub(super) updates: Vec<Update>,
}

impl<'a> Order<'a> {
    /// Finds the order of the versions of `key`, of which `reads` are the committed observations,
    /// those of a transaction one behind the other.
    pub(super) fn new(index: &'a Index<'_>, key: usize, reads: &[Observation<'_>]) -> Self {
        let writes = &index.keys[key];
        let is_version = |write: &Write| {
            index.committed[write.transaction] && (writes.is_list || !write.is_intermediate)
        };
        let versions: Vec<usize> = (0..writes.all.len())
            .filter(|at| is_version(&writes.all[*at]))
            .collect();
        let lsn = |at: &usize| index.transactions[writes.all[*at].transaction].commit_lsn;
        let mut chain: Vec<usize> = (versions.iter().copied())
            .filter(|at| lsn(at).is_some())
            .collect();
        // Stable: elements of one transaction stay in its order.
        chain.sort_by_key(lsn);
        let by_lsn = chain.len() == versions.len();
        if writes.is_list && !by_lsn {
            chain = longest(index, key, reads);
        }
        let places: HashMap<usize, usize> =
            chain.iter().enumerate().map(|(at, it)| (*it, at)).collect();
        let loose = (versions.iter().copied())
            .filter(|at| !places.contains_key(at))
            .collect();
        let mut order = Self {
            all: &writes.all,
            is_list: writes.is_list,
            chain,
            by_lsn,
            places,
            loose,
            behind: Vec::new(),
            updates: Vec::new(),
        };
        order.find_updates(index, key, reads);
        order.place_loose(index);
        order
    }

    /// Returns the version that a write made.
    fn version(&self, at: usize) -> Version {
        let place = self.places.get(&at);
        place.map_or(Version::Loose(at), |place| Version::Chain(place + 1))
    }

    /// Returns who wrote a version.
    pub(super) fn writer(&self, version: Version) -> Option<usize> {
        let at = match version {
            Version::Chain(count) => *self.chain.get(count.checked_sub(1)?)?,
            Version::Loose(at) => at,
        };
        Some(self.all[at].transaction)
    }

    /// Returns who wrote the versions right behind one, as far as they are known.
    pub(super) fn next(&self, version: Version) -> impl Iterator<Item = usize> {
        let start = self.behind.partition_point(|(it, _)| *it < version);
        let loose = (self.behind[start..].iter())
            .take_while(move |(it, _)| *it == version)
            .take(SUCCESSORS_MAX)
            .map(|(_, at)| *at);
        let following = match version {
            Version::Chain(count) => self.chain.get(count).copied(),
            Version::Loose(_) => None,
        };
        (following.into_iter().chain(loose)).map(|at| self.all[at].transaction)
    }

    /// Returns the version that a read has seen; none if that is not certain, or no version.
    pub(super) fn read(&self, index: &Index<'_>, observation: &Observation<'_>) -> Option<Version> {
        let keys = &index.keys[observation.key];
        match observation.seen {
            Seen::List(elements) => {
                let committed = committed(index, observation.key, elements);
                (self.shows(&committed)).then_some(Version::Chain(committed.len()))
            }
            Seen::Value(Some(value)) => {
                let at = *keys.by_value.get(&value)?;
                let write = &self.all[at];
                let is_version = index.committed[write.transaction] && !write.is_intermediate;
                is_version.then(|| self.version(at))
            }
            Seen::Value(None) => self.absent(index, observation.transaction),
        }
    }

    /// Returns the version that a read of an absent key has seen. Deletes look all the same, so
    /// where there are any it takes LSNs to tell.
    fn absent(&self, index: &Index<'_>, reader: usize) -> Option<Version> {
        if self.all.iter().all(|write| write.value.is_some()) {
            return Some(Version::Chain(0));
        }
        let lsn = index.transactions[reader].snapshot_lsn;
        let lsn = lsn.filter(|_| self.by_lsn)?;
        let of = |at: &usize| index.transactions[self.all[*at].transaction].commit_lsn;
        let count = self.chain.partition_point(|at| of(at) <= Some(lsn));
        let is_absent = count == 0 || self.all[self.chain[count - 1]].value.is_none();
        is_absent.then_some(Version::Chain(count))
    }

    /// Says whether the list of these writes is one that the chain went through.
    pub(super) fn shows(&self, list: &[usize]) -> bool {
        self.chain.starts_with(list)
    }

    /// Finds what each transaction that wrote the key had read of it last.
    fn find_updates(&mut self, index: &Index<'_>, key: usize, reads: &[Observation<'_>]) {
        let mut first = HashMap::new();
        for at in self.chain.iter().chain(&self.loose) {
            first.entry(self.all[*at].transaction).or_insert(*at);
        }
        for (number, observation) in reads.iter().enumerate() {
            debug_assert_eq!(observation.key, key);
            let transaction = observation.transaction;
            let is_last = (reads.get(number + 1)).is_none_or(|it| it.transaction != transaction);
            if let (true, Some(at)) = (is_last, first.get(&transaction))
                && let Some(read) = self.read(index, observation)
            {
                self.updates.push(Update {
                    transaction,
                    read,
                    written: self.version(*at),
                });
            }
        }
    }

    /// Puts loose versions behind those that they are known to follow.
    fn place_loose(&mut self, index: &Index<'_>) {
        let mut roots: BTreeSet<usize> = self.loose.iter().copied().collect();
        let mut behind = Vec::new();
        if self.is_list {
            let end = Version::Chain(self.chain.len());
            behind.extend(self.loose.iter().map(|at| (end, *at)));
            roots.clear();
        }
        for update in self.updates.iter().filter(|_| !self.is_list) {
            match (update.read, update.written) {
                (_, Version::Loose(at)) => {
                    roots.remove(&at);
                    behind.push((update.read, at));
                }
                (Version::Loose(_), Version::Chain(count)) => {
                    behind.push((update.read, self.chain[count - 1]));
                }
                (Version::Chain(_), Version::Chain(_)) => {}
            }
        }
        behind.extend(roots.into_iter().map(|at| (Version::Chain(0), at)));
        let ended = |at: usize| {
            let completed = index.transactions[self.all[at].transaction].completed;
            completed.unwrap_or(u64::MAX)
        };
        behind.sort_unstable_by_key(|(version, at)| (*version, ended(*at), *at));
        self.behind = behind;
    }
}

/// Returns the writes of a list's elements, without those that are of nobody who is committed.
pub(super) fn committed(index: &Index<'_>, key: usize, elements: &[u64]) -> Vec<usize> {
    let writes = &index.keys[key];
    let place = |element: &u64| writes.by_value.get(element).copied();
    let is_committed = |at: &usize| index.committed[writes.all[*at].transaction];
    elements
        .iter()
        .filter_map(place)
        .filter(is_committed)
        .collect()
}

/// Returns the longest list that was read and has no element twice.
fn longest(index: &Index<'_>, key: usize, reads: &[Observation<'_>]) -> Vec<usize> {
    let mut best: &[u64] = &[];
    for observation in reads {
        if let Seen::List(elements) = observation.seen
            && elements.len() > best.len()
        {
            let different: BTreeSet<_> = elements.iter().collect();
            if different.len() == elements.len() {
                best = elements;
            }
        }
    }
    committed(index, key, best)
}
