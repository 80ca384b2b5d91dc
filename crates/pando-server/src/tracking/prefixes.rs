//! Who wants to hear of all keys that begin with a prefix, whether it has read them or not.

use std::collections::{BTreeMap, HashMap};

use pando_sync::Arc;

use super::tracker::Tracker;
use crate::pubsub::message::Name;

/// The clients of a prefix, by id.
type Members = BTreeMap<u64, Arc<Tracker>>;

/// All prefixes. A key is looked up once for each length that prefixes have.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    members: HashMap<Name, Members>,
    /// Number of prefixes of each length.
    lengths: BTreeMap<usize, usize>,
}

impl Prefixes {
    pub(super) fn add(&mut self, prefix: &Name, tracker: &Arc<Tracker>) {
        let members = self.members.entry(Arc::clone(prefix)).or_default();
        if members.is_empty() {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        members.insert(tracker.id, Arc::clone(tracker));
    }

    pub(super) fn remove(&mut self, prefix: &[u8], id: u64) {
        let Some(members) = self.members.get_mut(prefix) else {
            return;
        };
        if members.remove(&id).is_none() || !members.is_empty() {
            return;
        }
        self.members.remove(prefix);
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }

    /// Returns the prefixes of a key, in the order of their lengths.
    pub(super) fn of<'k>(&self, key: &'k [u8]) -> impl Iterator<Item = &'k [u8]> {
        let lengths = self
            .lengths
            .keys()
            .take_while(|length| **length <= key.len());
        let prefixes = lengths.map(|length| &key[..*length]);
        prefixes.filter(|prefix| self.members.contains_key(*prefix))
    }

    /// Returns the clients of a prefix.
    pub(super) fn members(&self, prefix: &[u8]) -> Vec<Arc<Tracker>> {
        let members = self.members.get(prefix);
        members.map_or_else(Vec::new, |members| members.values().cloned().collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pubsub::mailbox::Mailbox;
    use std::task::Waker;

    #[test]
    fn a_key_has_the_prefixes_that_somebody_wants() {
        let mut prefixes = Prefixes::default();
        let tracker = |id| {
            let mailbox = Arc::new(Mailbox::new(Waker::noop().clone()));
            Arc::new(Tracker::new(id, mailbox))
        };
        let (one, two) = (tracker(1), tracker(2));
        let name = |text: &str| Name::from(text.as_bytes());
        for text in ["", "ab", "abc", "xy"] {
            prefixes.add(&name(text), &one);
            prefixes.add(&name(text), &one);
        }
        prefixes.add(&name("ab"), &two);
        let of = |prefixes: &Prefixes, key: &'static str| {
            let found: Vec<_> = prefixes.of(key.as_bytes()).collect();
            found.join(&b'|')
        };
        assert_eq!(of(&prefixes, "abcd"), b"|ab|abc");
        assert_eq!(of(&prefixes, "a"), b"");
        assert_eq!(prefixes.members(b"ab").len(), 2);
        prefixes.remove(b"ab", 2);
        prefixes.remove(b"ab", 2);
        prefixes.remove(b"abc", 1);
        assert_eq!(of(&prefixes, "abcd"), b"|ab");
        for text in ["", "ab", "abc", "xy"] {
            prefixes.remove(text.as_bytes(), 1);
        }
        assert!(prefixes.is_empty() && prefixes.lengths.is_empty());
    }
}
