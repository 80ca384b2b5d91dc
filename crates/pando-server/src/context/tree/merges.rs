//! Storing what large sets and sorted sets make together without reading them into memory: a thread
//! merges their rows, and writes those of the result (decisions 126 and 129).
//!
//! What the thread reads are the rows of the heads that the command has read, for the reason that
//! `copies.rs` gives.

use std::hash::{Hash as _, Hasher as _};

use pandodb::Table;

use crate::context::inputs::{Content, Input};
use crate::context::row_source::Heading;
use crate::context::{Context, Interrupted, Run};
use crate::data::combination::{Aggregate, Merged, Operation};
use crate::data::elements::ElementKeys;
use crate::data::keyspace::{Times, ValueType};
use crate::data::limits::Limits;
use crate::data::merge_source::MergeSource;
use crate::data::merged_rows::{Merge, MergedRows};
use crate::data::new_members::{Arrival, NewMembers};
use crate::data::new_rows::NewRows;
use crate::data::packed::{Encoding, Strings};
use crate::data::shown_merge::{MergeRequest, ShownMembers};
use crate::data::tree_head::TreeHead;

/// Most elements that are read into memory: they hold the loop.
const READ_IN_MEMORY: usize = 8192;
/// Bytes of rows that are read of all inputs at a time, about, and of each of them.
const PAGES_BYTES: usize = 1 << 20;
const PAGE_BYTES_MIN: usize = 512;
const PAGE_BYTES_MAX: usize = 64 * 1024;

/// How inputs are combined.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The type of the result.
    pub(crate) value_type: ValueType,
    pub(crate) operation: Operation,
    pub(crate) aggregate: Aggregate,
}

/// What has become of a result.
#[derive(Debug)]
pub(crate) enum Stored {
    /// It is the value of the key, and has so many members.
    Written(usize),
    /// It is little, and was not written: the strings of a collection.
    Little(Strings),
}

impl Context<'_> {
    /// Combines the inputs, in the order in which scores are added, and makes the result the value
    /// of `key`; `None` if that is to be done in memory: they are short, or of the transaction's
    /// own, or it sees an earlier moment.
    pub(crate) fn put_merged(
        &mut self,
        key: &[u8],
        inputs: &[Input],
        rule: &Rule,
    ) -> Result<Option<Stored>, Interrupted> {
        if !self.is_to_be_merged(inputs, rule.operation)? {
            return Ok(None);
        }
        let sources = self.members()?.clone();
        let identity = (rule.value_type, self.hash_of_inputs(&sources, inputs, rule));
        let keys = self.engine().element_keys;
        let stored = self.put_members(key, identity, (None, Arrival::ByName), |made| {
            let sources = merge_sources(&sources, inputs, &keys);
            let merge = Merge::new(sources, (rule.operation, rule.aggregate));
            Box::new(MergedRows::new(merge, made))
        });
        stored.map(Some)
    }

    /// Returns true if an earlier run has had a thread begin to write these members.
    pub(super) fn has_begun_members(&self, (value_type, hash): (ValueType, u64)) -> bool {
        let identity = (self.session.database, value_type, hash);
        self.progress.builds.has_begun(identity)
    }

    /// Makes the set or sorted set whose rows a thread writes, of as many members as are expected,
    /// if that is known, the value of `key`. They arrive in the order that is given. What `begin`
    /// returns depends on `identity` alone, a type and a hash.
    pub(super) fn put_members(
        &mut self,
        key: &[u8],
        identity: (ValueType, u64),
        (expected, arrival): (Option<usize>, Arrival),
        begin: impl FnOnce(NewMembers) -> Box<dyn NewRows>,
    ) -> Result<Stored, Interrupted> {
        let (value_type, _) = identity;
        let members = self.make_members()?;
        let (mut head, merged) = self.built(members, identity, |context, id| {
            let keys = context.engine().element_keys;
            let is_scored = value_type == ValueType::SortedSet;
            let most = context.element_bytes_max();
            let rows = begin(NewMembers::new((keys, id), (is_scored, arrival), most));
            Ok((TreeHead::new(id), rows))
        })?;
        let merged = merged.get().expect("it was set before the job has ended");
        head.count = merged.count;
        if expected.is_some_and(|count| count != head.len()) {
            // What they are made of has changed meanwhile.
            return Err(Interrupted::Torn);
        }
        if let Some(little) = &merged.little {
            return Ok(Stored::Little(little.clone()));
        }
        let former = self.find_any_head(key)?.former;
        let limits = self.shared.settings.encoding_limits.of(value_type);
        let what = ((value_type, encoding_of(value_type, merged, limits)), &head);
        self.put_tree_head(key, what, Times::default(), former)?;
        Ok(Stored::Written(head.len()))
    }

    /// Asks for what the inputs have in common or together to be read while it is sent, if much is
    /// to be read for that or it `must` be. Returns only if it is not to be: the command reads it
    /// itself.
    pub(crate) fn ask_for_merged(
        &mut self,
        inputs: &[Input],
        (rule, shown): (&Rule, ShownMembers),
        must: bool,
    ) -> Run {
        let is_wanted = match must {
            true => self.may_be_merged(inputs)?,
            false => self.is_to_be_merged(inputs, rule.operation)?,
        };
        if !is_wanted || !self.may_reply_large()? {
            return Ok(());
        }
        let stored = inputs.iter().map(|input| {
            let mut stored = Vec::new();
            let key = self.argument(input.at());
            self.engine().folder.store(key, &mut stored);
            (stored, input.weight)
        });
        let request = MergeRequest {
            inputs: stored.collect(),
            keys: self.database().keys.clone(),
            members: self.members()?.clone(),
            element_keys: self.engine().element_keys,
            operation: rule.operation,
            aggregate: rule.aggregate,
            types: match rule.value_type {
                ValueType::SortedSet => &[ValueType::SortedSet, ValueType::Set],
                _ => &[ValueType::Set],
            },
            shown,
            scratch: self.shared.scratch.clone(),
            version: self.session.version,
            now_ms: self.now_ms,
        };
        let heading = match shown {
            ShownMembers::Unsorted => Heading::Set,
            ShownMembers::ByScore(score) => self.heading_of_members(score.is_some()),
            ShownMembers::Count(_) => Heading::Number,
        };
        self.begin_request(Box::new(request), heading)
    }

    /// Returns true if so much is to be read that a thread does it.
    fn is_to_be_merged(
        &mut self,
        inputs: &[Input],
        operation: Operation,
    ) -> Result<bool, Interrupted> {
        let read = match operation {
            Operation::Union => inputs.iter().map(Input::len).sum(),
            Operation::Intersection | Operation::Difference => inputs[0].len(),
        };
        match read <= READ_IN_MEMORY {
            true => Ok(false),
            false => self.may_be_merged(inputs),
        }
    }

    /// Returns true if some inputs are large, and those are in the store as the command has them.
    fn may_be_merged(&mut self, inputs: &[Input]) -> Result<bool, Interrupted> {
        let heads = inputs.iter().filter_map(|input| match input.content() {
            Content::Large(head) => Some(head.id),
            Content::Packed(_) => None,
        });
        let ids: Vec<u64> = heads.collect();
        if ids.is_empty() {
            return Ok(false);
        }
        let members = self.members()?;
        Ok(ids.iter().all(|id| self.is_as_stored(members, *id)))
    }

    /// Returns a hash that tells these states of the inputs, and what is made of them.
    fn hash_of_inputs(&self, members: &Table, inputs: &[Input], rule: &Rule) -> u64 {
        let mut hasher = self.progress.builds.hasher();
        (members.name(), members.last_swap()).hash(&mut hasher);
        (rule.operation, rule.aggregate).hash(&mut hasher);
        for input in inputs {
            input.weight.to_bits().hash(&mut hasher);
            match input.content() {
                Content::Large(head) => (head.id, head.edition, head.count).hash(&mut hasher),
                Content::Packed(packed) => {
                    let strings = &packed.strings;
                    strings.len().hash(&mut hasher);
                    strings.iter().for_each(|string| string.hash(&mut hasher));
                }
            }
        }
        hasher.finish()
    }
}

fn merge_sources(members: &Table, inputs: &[Input], keys: &ElementKeys) -> Vec<MergeSource> {
    let page_bytes = (PAGES_BYTES / inputs.len()).clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX);
    let sources = inputs.iter().map(|input| {
        let how = (input.value_type == ValueType::SortedSet, input.weight);
        match input.content() {
            Content::Large(head) => {
                MergeSource::of_rows((members.clone(), head.id), page_bytes, how)
            }
            Content::Packed(packed) => MergeSource::of_strings(&packed.strings, keys, how),
        }
    });
    sources.collect()
}

/// Returns the encoding that Redis shows of a result.
fn encoding_of(value_type: ValueType, merged: &Merged, limits: Limits) -> Encoding {
    let count = usize::try_from(merged.count).unwrap_or(usize::MAX);
    let is_compact = count <= limits.elements && merged.longest <= limits.bytes;
    match value_type {
        ValueType::Set if !merged.has_others && count <= limits.integers => Encoding::Intset,
        _ if is_compact => Encoding::Listpack,
        ValueType::Set => Encoding::Hashtable,
        _ => Encoding::Skiplist,
    }
}
