//! A sorted set in memory, and the search in its order.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

use crate::context::{Collection, Context, Found, Interrupted, Part, Run, Stored};
use crate::data::keyspace::{RowError, ValueType};
use crate::data::packed::Encoding;
use crate::data::tree_head::TreeHead;
use crate::notifications::classes::Class;

/// A member and its score; of a set, whose members have no score, the score is 1.
pub(in crate::commands) type Element<'a> = (f64, &'a [u8]);

/// Compares two elements: by score, then by member.
pub(super) fn compare(a: &Element<'_>, b: &Element<'_>) -> Ordering {
    let of_scores = a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal);
    of_scores.then_with(|| a.1.cmp(b.1))
}

/// A sorted set, or the part of a large one that was read; an empty one if the key has none. What
/// is called a rank here is the place among the elements in memory.
#[derive(Debug)]
pub(in crate::commands) struct SortedSet {
    collection: Collection,
}

impl SortedSet {
    /// Reads the one at `key`, to be changed; of a large one a part.
    pub(in crate::commands) fn find_part(
        context: &mut Context<'_>,
        key: &[u8],
        part: &Part<'_>,
    ) -> Result<Self, Interrupted> {
        Self::checked(context.find_part(key, part)?)
    }

    /// As [`SortedSet::find_part`], of the row that was read last.
    pub(super) fn found_part(
        context: &mut Context<'_>,
        found: Found,
        part: &Part<'_>,
    ) -> Result<Self, Interrupted> {
        Self::checked(context.decoded(found, ValueType::SortedSet, part)?)
    }

    /// Reads the one at `key`, for a reply, and no more than a part of a large one.
    pub(in crate::commands) fn read_part(
        context: &mut Context<'_>,
        key: &[u8],
        part: &Part<'_>,
    ) -> Result<Self, Interrupted> {
        Self::checked(context.read_part(key, part)?)
    }

    /// Takes what was decoded, which may be any strings.
    pub(super) fn checked(collection: Collection) -> Result<Self, Interrupted> {
        let mut set = Self::as_read(collection)?;
        let is_before = |rank: usize| compare(&set.element(rank - 1), &set.element(rank)).is_gt();
        // Long members of a large one are in another order.
        if set.collection.is_tree() && (1..set.in_memory()).any(is_before) {
            let mut elements: Vec<(f64, Vec<u8>)> = set
                .elements()
                .map(|(score, member)| (score, member.to_vec()))
                .collect();
            elements.sort_by(|a, b| compare(&(a.0, &a.1), &(b.0, &b.1)));
            set.collection.strings.keep(0..0);
            for (score, member) in elements {
                set.collection.strings.push(&member);
                set.collection.strings.push(&score.to_le_bytes());
            }
        }
        Ok(set)
    }

    /// As [`SortedSet::checked`], but the elements keep the order in which they were read, which
    /// may be any.
    pub(super) fn as_read(collection: Collection) -> Result<Self, Interrupted> {
        let strings = &collection.strings;
        let mut scores = (1..strings.len()).step_by(2).map(|at| strings.at(at));
        match scores.all(|bytes| score_of(bytes).is_some_and(|score| !score.is_nan())) {
            true => Ok(Self { collection }),
            false => Err(RowError::Damaged.into()),
        }
    }

    /// Creates one of elements in any order, whose members differ; `empty` has none.
    pub(in crate::commands) fn of(mut elements: Vec<Element<'_>>, empty: Collection) -> Self {
        assert_eq!(empty.strings.len(), 0, "it is empty");
        elements.sort_unstable_by(compare);
        let mut set = Self { collection: empty };
        for (_, member) in &elements {
            set.grow(member, elements.len());
        }
        for (score, member) in elements {
            set.collection.strings.push(member);
            let score = set.stored(score);
            set.collection.strings.push(&score);
        }
        set
    }

    /// Returns it as a collection.
    pub(in crate::commands) fn into_collection(self) -> Collection {
        self.collection
    }

    /// Returns a collection without elements and without a row, of the same encoding.
    pub(super) fn empty_like(&self) -> Collection {
        let limits = self.collection.limits;
        let mut empty = Collection::new(Found::default(), ValueType::SortedSet, limits);
        empty.encoding = self.encoding();
        empty
    }

    /// Becomes the new value of the row that `old` was read from.
    pub(super) fn take_row(&mut self, old: Self) {
        self.collection.replace(old.collection);
        if self.len() > self.collection.limits.elements {
            self.enlarge();
        }
    }

    /// Returns the most elements of a listpack.
    pub(super) fn listpack_elements_max(&self) -> usize {
        self.collection.limits.elements
    }

    pub(in crate::commands) fn exists(&self) -> bool {
        self.collection.exists()
    }

    /// Returns the number of all elements.
    pub(in crate::commands) fn len(&self) -> usize {
        self.collection.len()
    }

    /// Returns the number of elements in memory.
    pub(in crate::commands) fn in_memory(&self) -> usize {
        self.collection.in_memory()
    }

    /// Returns the head of a large one.
    pub(super) fn tree_head(&self) -> Option<TreeHead> {
        self.collection.loaded_head()
    }

    pub(super) fn encoding(&self) -> Encoding {
        self.collection.encoding
    }

    /// Makes it one that Redis would not keep in a listpack.
    pub(super) fn enlarge(&mut self) {
        self.collection.encoding = Encoding::Skiplist;
    }

    /// Returns the member at `rank`, which exists.
    pub(in crate::commands) fn member(&self, rank: usize) -> &[u8] {
        self.collection.strings.at(rank * 2)
    }

    /// Returns the score at `rank`, which exists.
    pub(in crate::commands) fn score(&self, rank: usize) -> f64 {
        score_of(self.collection.strings.at(rank * 2 + 1)).unwrap_or(0.0)
    }

    pub(in crate::commands) fn element(&self, rank: usize) -> Element<'_> {
        (self.score(rank), self.member(rank))
    }

    pub(in crate::commands) fn elements(&self) -> impl DoubleEndedIterator<Item = Element<'_>> {
        (0..self.in_memory()).map(|rank| self.element(rank))
    }

    /// Returns the rank of `member`.
    pub(in crate::commands) fn rank_of(&self, member: &[u8]) -> Option<usize> {
        let place = self.collection.strings.find(member, 2);
        place.map(|place| place / 2)
    }

    /// Returns the score of each of these members; `None` if there is no such member.
    pub(super) fn scores_of(&self, members: &[&[u8]]) -> Vec<Option<f64>> {
        let mut named = self.collection.named(members);
        let places = members.iter().map(|member| named.find(member));
        places
            .map(|place| place.map(|place| self.score(place / 2)))
            .collect()
    }

    /// Returns the scores of all members: for a command that asks for many.
    pub(in crate::commands) fn scores(&self) -> HashMap<&[u8], f64> {
        self.elements()
            .map(|(score, member)| (member, score))
            .collect()
    }

    /// Returns the first rank whose element is not before the place that `is_before` describes.
    pub(in crate::commands) fn rank_behind(
        &self,
        is_before: impl Fn(&Element<'_>) -> bool,
    ) -> usize {
        let (mut low, mut high) = (0, self.in_memory());
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(&self.element(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Inserts a member that is not there.
    pub(in crate::commands) fn insert(&mut self, member: &[u8], score: f64) {
        self.grow(member, self.len() + 1);
        self.place(member, score);
    }

    /// Gives the member at `rank`, which exists, another score.
    pub(in crate::commands) fn set_score(&mut self, rank: usize, score: f64) {
        let member = self.member(rank).to_vec();
        self.remove(rank..rank + 1);
        self.place(&member, score);
    }

    fn place(&mut self, member: &[u8], score: f64) {
        let wanted = (score, member);
        let rank = self.rank_behind(|element| compare(element, &wanted).is_lt());
        let score = self.stored(score);
        self.collection.strings.insert(rank * 2, member);
        self.collection.strings.insert(rank * 2 + 1, &score);
    }

    /// Chooses the encoding of a set of `count` members that gets `member`.
    fn grow(&mut self, member: &[u8], count: usize) {
        let most = self.collection.limits;
        if count > most.elements || member.len() > most.bytes {
            self.enlarge();
        }
    }

    /// Returns the bytes of a score. A listpack of Redis knows no negative zero.
    fn stored(&self, score: f64) -> [u8; 8] {
        match self.collection.encoding {
            Encoding::Listpack => (score + 0.0).to_le_bytes(),
            _ => score.to_le_bytes(),
        }
    }

    /// Removes the elements at `ranks`, which exist.
    pub(in crate::commands) fn remove(&mut self, ranks: Range<usize>) {
        self.collection
            .strings
            .remove(ranks.start * 2..ranks.end * 2);
    }

    /// Removes the members with these names. Returns their number.
    pub(super) fn remove_named(&mut self, names: &[&[u8]]) -> i64 {
        self.collection.remove_named(names)
    }

    /// Writes it to the key that it was read from.
    pub(in crate::commands) fn put(&self, context: &mut Context<'_>, key: &[u8]) -> Run {
        context.put_collection(key, &self.collection)
    }
}

/// Writes elements to `key`, whatever it has had, and replies with their number.
pub(in crate::commands) fn store(
    context: &mut Context<'_>,
    key: &[u8],
    elements: Vec<Element<'_>>,
) -> Run {
    let found = context.find_any_head(key)?;
    let count = elements.len();
    if count > 0 {
        let empty = context.replacement(&found, ValueType::SortedSet);
        SortedSet::of(elements, empty).put(context, key)?;
        tell_stored(context, key);
    } else if found.is_written() {
        context.remove(key, &found)?;
        if found.row.is_some() {
            context.event(Class::Generic, "del", key);
        }
    }
    context.integer(i64::try_from(count).unwrap_or(i64::MAX))
}

fn tell_stored(context: &mut Context<'_>, key: &[u8]) {
    let event = match context.command.name {
        "georadius" | "georadiusbymember" => "georadiusstore",
        name => name,
    };
    context.event(Class::SortedSet, event, key);
}

/// As [`store`], of what a thread has made.
pub(in crate::commands) fn end_store(
    context: &mut Context<'_>,
    key: &[u8],
    stored: &Stored,
) -> Run {
    match stored {
        Stored::Written(count) => {
            tell_stored(context, key);
            context.integer(i64::try_from(*count).unwrap_or(i64::MAX))
        }
        Stored::Little(strings) => {
            let places = (0..strings.len()).step_by(2);
            let elements = places.map(|place| {
                let score = score_of(strings.at(place + 1));
                (score.expect("it has eight bytes"), strings.at(place))
            });
            let elements: Vec<Element<'_>> = elements.collect();
            store(context, key, elements)
        }
    }
}

pub(in crate::commands) fn score_of(bytes: &[u8]) -> Option<f64> {
    bytes.try_into().ok().map(f64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::limits::EncodingLimits;
    use proptest::prelude::*;

    fn collection() -> Collection {
        let limits = EncodingLimits::default().of(ValueType::SortedSet);
        Collection::new(Found::default(), ValueType::SortedSet, limits)
    }

    fn empty() -> SortedSet {
        SortedSet::of(Vec::new(), collection())
    }

    #[test]
    fn the_encoding_is_that_of_redis_and_never_shrinks() {
        let mut set = empty();
        for number in 0..128_u8 {
            set.insert(&[number], 1.0);
        }
        assert_eq!(set.encoding(), Encoding::Listpack);
        set.insert(b"x1", 1.0);
        assert_eq!(set.encoding(), Encoding::Skiplist);
        set.remove(0..100);
        assert_eq!(set.encoding(), Encoding::Skiplist);
        let mut set = empty();
        set.insert(&[b'a'; 64], 1.0);
        assert_eq!(set.encoding(), Encoding::Listpack);
        set.insert(&[b'a'; 65], 1.0);
        assert_eq!(set.encoding(), Encoding::Skiplist);
    }

    #[test]
    fn scores_of_other_lengths_and_no_numbers_are_damaged() {
        for score in [&b"1234567"[..], b"123456789", &f64::NAN.to_le_bytes()] {
            let mut collection = collection();
            collection.strings.push(b"member");
            collection.strings.push(score);
            let checked = SortedSet::checked(collection);
            assert!(matches!(checked, Err(Interrupted::Row(RowError::Damaged))));
        }
    }

    proptest! {
        #[test]
        fn edits_are_those_of_a_sorted_list(
            edits in prop::collection::vec((0..9_u8, -3..3_i8, any::<bool>()), 0..60),
        ) {
            let mut set = empty();
            let mut twin: Vec<(i8, Vec<u8>)> = Vec::new();
            for (name, score, removes) in edits {
                let member = vec![b'm'; usize::from(name) / 3].into_iter().chain([name]);
                let member: Vec<u8> = member.collect();
                twin.retain(|(_, other)| *other != member);
                match (set.rank_of(&member), removes) {
                    (Some(rank), true) => set.remove(rank..rank + 1),
                    (Some(rank), false) => set.set_score(rank, f64::from(score)),
                    (None, false) => set.insert(&member, f64::from(score)),
                    (None, true) => {}
                }
                if !removes {
                    twin.push((score, member));
                    twin.sort();
                }
                let shown: Vec<_> = set.elements().collect();
                let wanted: Vec<_> =
                    twin.iter().map(|(score, member)| (f64::from(*score), &member[..])).collect();
                prop_assert_eq!(shown, wanted);
            }
        }
    }
}
