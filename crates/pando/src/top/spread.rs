//! A histogram as INFO shows it: counts by the upper end of their bucket.

/// Counts of values, ascending by the largest value of their bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spread {
    /// Number of values.
    pub(crate) count: u64,
    /// Sum of the values, in the unit of the histogram.
    pub(crate) sum: u64,
    buckets: Vec<(u64, u64)>,
}

impl Spread {
    /// Parses `count=N,sum=N,buckets=END:COUNT END:COUNT ...`; returns `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (count, rest) = text.strip_prefix("count=")?.split_once(",sum=")?;
        let (sum, rest) = rest.split_once(",buckets=")?;
        let mut buckets = Vec::new();
        for bucket in rest.split_ascii_whitespace() {
            let (end, count) = bucket.split_once(':')?;
            buckets.push((end.parse().ok()?, count.parse().ok()?));
        }
        buckets.sort_unstable();
        // A server may send any numbers: the sum of the counts must not overflow.
        let counts = buckets.iter().map(|(_, count): &(u64, u64)| *count);
        counts.into_iter().try_fold(0, u64::checked_add)?;
        Some(Self {
            count: count.parse().ok()?,
            sum: sum.parse().ok()?,
            buckets,
        })
    }

    /// Returns what was added after `earlier`; everything if the server was reset in between.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut before = earlier.buckets.iter().copied().peekable();
        let mut buckets = Vec::new();
        for (end, count) in &self.buckets {
            // A bucket that is missing now, or has less than before, shows a reset.
            let old = match before.next_if(|(old_end, _)| old_end == end) {
                Some((_, old)) if old <= *count => old,
                Some(_) => return self.clone(),
                None if before.peek().is_some_and(|(old_end, _)| old_end < end) => {
                    return self.clone();
                }
                None => 0,
            };
            if old < *count {
                buckets.push((*end, count - old));
            }
        }
        if before.next().is_some() || earlier.sum > self.sum {
            return self.clone();
        }
        Self {
            count: buckets.iter().map(|(_, count)| count).sum(),
            sum: self.sum - earlier.sum,
            buckets,
        }
    }

    /// Returns the value that a share of `share` (0 to 1) of all values does not exceed, within 2
    /// %; `None` without values.
    pub(crate) fn percentile(&self, share: f64) -> Option<u64> {
        let all: u64 = self.buckets.iter().map(|(_, count)| count).sum();
        let wanted = (share * all as f64).ceil().max(1.0);
        let mut seen = 0_u64;
        for (end, count) in &self.buckets {
            seen = seen.saturating_add(*count);
            if seen as f64 >= wanted {
                return Some(*end);
            }
        }
        None
    }

    /// Returns the mean; `None` without values.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    fn spread(text: &str) -> Spread {
        Spread::parse(text).unwrap()
    }

    #[test]
    fn what_came_between_is_the_difference() {
        let before = spread("count=3,sum=30,buckets=5:1 10:2");
        let after = spread("count=7,sum=330,buckets=5:1 7:1 10:3 100:2");
        let between = after.since(&before);
        assert_eq!(between, spread("count=4,sum=300,buckets=7:1 10:1 100:2"));
        assert_eq!(between.percentile(0.5), Some(10));
        assert_eq!(between.percentile(0.51), Some(100));
        assert_eq!(between.mean(), Some(75.0));
        assert_eq!(after.since(&after).percentile(0.99), None);
        assert_eq!(after.since(&after).mean(), None);
    }

    /// After a restart of the server its counts begin at 0 again, so nothing is subtracted.
    #[test]
    fn a_server_that_began_anew_is_seen() {
        let after = spread("count=2,sum=20,buckets=10:2");
        for before in [
            "count=3,sum=30,buckets=10:3",
            "count=1,sum=7,buckets=7:1",
            "count=1,sum=90,buckets=90:1",
            "count=1,sum=19,buckets=19:1",
            "count=1,sum=21,buckets=10:1",
        ] {
            assert_eq!(after.since(&spread(before)), after, "{before}");
        }
    }

    const MAX: &str = "count=1,sum=1,buckets=1:18446744073709551615 2:1";

    #[test]
    fn what_is_no_histogram_is_none() {
        assert_eq!(
            Spread::parse("count=0,sum=0,buckets="),
            Some(Spread::default())
        );
        for text in [
            "",
            "count=1",
            "count=1,sum=1,buckets=1",
            "count=1,sum=x,buckets=1:1",
            MAX,
        ] {
            assert_eq!(Spread::parse(text), None, "{text}");
        }
    }
}
