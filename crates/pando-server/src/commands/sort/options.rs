//! The options of SORT.

use std::ops::Range;

use super::order::Order;
use super::pattern::Pattern;
use crate::context::{Context, replies};
use crate::data::keyspace::ValueType;

pub(super) struct Options<'a> {
    pub(super) is_descending: bool,
    is_alpha: bool,
    limit: (i64, i64),
    /// Nothing is sorted: a pattern of BY has no star, whatever the others have.
    is_unsorted: bool,
    by: Option<Pattern<'a>>,
    /// What is returned for each element; empty: itself.
    pub(super) get: Vec<Pattern<'a>>,
    /// The key at which the result is stored.
    pub(super) store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    pub(super) fn parse(context: &Context<'a>, may_store: bool) -> Result<Self, &'static str> {
        let mut options = Self {
            is_descending: false,
            is_alpha: false,
            limit: (0, -1),
            is_unsorted: false,
            by: None,
            get: Vec::new(),
            store: None,
        };
        let mut at = 2;
        while at < context.count() {
            let left = context.count() - at - 1;
            let mut taken = 0;
            if context.is(at, "asc") {
                options.is_descending = false;
            } else if context.is(at, "desc") {
                options.is_descending = true;
            } else if context.is(at, "alpha") {
                options.is_alpha = true;
            } else if context.is(at, "limit") && left >= 2 {
                options.limit = (context.integer_at(at + 1)?, context.integer_at(at + 2)?);
                taken = 2;
            } else if may_store && context.is(at, "store") && left >= 1 {
                options.store = Some(context.argument(at + 1));
                taken = 1;
            } else if context.is(at, "by") && left >= 1 {
                let pattern = Pattern::parse(context.argument(at + 1));
                options.is_unsorted |= !matches!(pattern, Pattern::Key { .. });
                options.by = Some(pattern);
                taken = 1;
            } else if context.is(at, "get") && left >= 1 {
                options.get.push(Pattern::parse(context.argument(at + 1)));
                taken = 1;
            } else {
                return Err(replies::SYNTAX);
            }
            at += 1 + taken;
        }
        Ok(options)
    }

    /// Returns how a value of this type is ordered, for a script or for a client.
    pub(super) fn order(&self, value_type: ValueType, is_in_script: bool) -> Order<'a> {
        let is_set = value_type == ValueType::Set;
        if !self.is_unsorted {
            Order::Sorted {
                by: self.by,
                is_alpha: self.is_alpha,
            }
        } else if is_set && (is_in_script || self.store.is_some()) {
            // So that what is stored, or what a script does, does not depend on the order that the
            // set has.
            Order::Sorted {
                by: None,
                is_alpha: true,
            }
        } else if self.is_descending && !is_set {
            Order::Reversed
        } else {
            Order::AsIs
        }
    }

    /// Returns the range of the elements that are returned.
    pub(super) fn range(&self, length: usize) -> Range<usize> {
        limited(self.limit, length)
    }
}

/// Returns the range that LIMIT selects among `length` elements; a negative count selects all.
fn limited((offset, count): (i64, i64), length: usize) -> Range<usize> {
    let start = usize::try_from(offset.max(0)).unwrap_or(usize::MAX);
    let start = start.min(length);
    let end = match usize::try_from(count) {
        Ok(count) => start.saturating_add(count).min(length),
        Err(_) => length,
    };
    start..end
}

#[cfg(test)]
mod tests {
    use super::limited;

    #[test]
    fn limits_are_those_of_redis() {
        assert_eq!(limited((0, -1), 5), 0..5);
        assert_eq!(limited((1, 2), 5), 1..3);
        assert_eq!(limited((4, 9), 5), 4..5);
        assert_eq!(limited((5, 1), 5), 5..5);
        assert_eq!(limited((-3, 2), 5), 0..2);
        assert_eq!(limited((2, 0), 5), 2..2);
        assert_eq!(limited((i64::MAX, i64::MAX), 5), 5..5);
        assert_eq!(limited((1, i64::MAX), 5), 1..5);
        assert_eq!(limited((i64::MIN, i64::MIN), 5), 0..5);
    }
}
