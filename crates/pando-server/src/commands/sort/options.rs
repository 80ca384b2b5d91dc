//! The options of SORT.

use std::ops::Range;

use super::order::Order;
use super::pattern::Pattern;
use super::weight;
use crate::context::{Context, replies};
use crate::data::keyspace::ValueType;
use crate::data::shown_sort::{SortHow, SortOrder, limited};

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

    /// Returns how threads sort elements in this order.
    pub(super) fn how(&self, order: &Order<'_>) -> SortHow {
        SortHow {
            order: match order {
                Order::AsIs => SortOrder::AsIs,
                Order::Reversed => SortOrder::Reversed,
                Order::Sorted { by, is_alpha } => {
                    let by = by.as_ref().map(Pattern::owned);
                    match is_alpha {
                        true => SortOrder::Texts(by),
                        false => SortOrder::Numbers(by, weight::number),
                    }
                }
            },
            is_descending: self.is_descending,
            limit: self.limit,
            shown: self.get.iter().map(Pattern::owned).collect(),
        }
    }

    /// Returns the range of the elements that are returned.
    pub(super) fn range(&self, length: usize) -> Range<usize> {
        limited(self.limit, length)
    }
}
