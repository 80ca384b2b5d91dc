//! Two samples, and what happened between them.

use super::sample::Sample;
use super::spread::Spread;

/// The newest sample, and the one before it if they can be compared.
pub(crate) struct Figures<'a> {
    /// Its counters are those since the start of the server.
    pub(crate) now: &'a Sample,
    before: Option<&'a Sample>,
    seconds: f64,
}

/// Figures of one command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommandRow {
    /// As INFO names it.
    pub(crate) name: String,
    /// Calls per second; the number of all calls if there is no earlier sample.
    pub(crate) rate: f64,
    /// Durations of the calls that `rate` counts.
    pub(crate) spread: Spread,
    /// Failed calls per second; `None` if that is not known.
    pub(crate) failures: Option<f64>,
}

impl<'a> Figures<'a> {
    /// Creates the figures of `now`, and of the time since `before`.
    pub(crate) fn new(now: &'a Sample, before: Option<&'a Sample>) -> Self {
        let before = before.filter(|before| before.is_of_run(now) && before.at < now.at);
        let seconds = before.map_or(1.0, |before| now.at.duration_since(before.at).as_secs_f64());
        Self {
            now,
            before,
            seconds,
        }
    }

    /// Returns true if there is no earlier sample: figures then cover all the time since the start.
    pub(crate) fn is_first(&self) -> bool {
        self.before.is_none()
    }

    /// Returns the growth of counter `name`; `None` if it is unknown, for example after a reset.
    fn growth(&self, name: &str) -> Option<u64> {
        let (now, before) = (self.now.number(name)?, self.before?.number(name)?);
        now.checked_sub(before)
    }

    /// Returns the growth of counter `name` per second.
    pub(crate) fn rate(&self, name: &str) -> Option<f64> {
        Some(self.growth(name)? as f64 / self.seconds)
    }

    /// Returns the share of `part` in `part` and `rest`.
    fn share(part: u64, rest: u64) -> Option<f64> {
        let all = part.saturating_add(rest);
        (all > 0).then(|| part as f64 / all as f64)
    }

    /// Returns the share of the server's look-ups that found a key.
    pub(crate) fn lookups_found(&self) -> Option<f64> {
        let (hits, misses) = (
            self.growth("keyspace_hits")?,
            self.growth("keyspace_misses")?,
        );
        Self::share(hits, misses)
    }

    /// Returns the share of point reads that found all pages in memory.
    pub(crate) fn gets_cached(&self) -> Option<f64> {
        let (gets, missed) = (
            self.growth("gets_total")?,
            self.growth("gets_missed_total")?,
        );
        Self::share(gets.saturating_sub(missed), missed)
    }

    /// Returns the growth of `top` per unit of growth of `bottom`.
    pub(crate) fn ratio(&self, top: &str, bottom: &str) -> Option<f64> {
        let (top, bottom) = (self.growth(top)?, self.growth(bottom)?);
        (bottom > 0).then(|| top as f64 / bottom as f64)
    }

    /// Returns the values of histogram `name` since the earlier sample, or since the start.
    pub(crate) fn spread(&self, name: &str) -> Option<Spread> {
        let now = self.now.spread(name)?;
        Some(match self.before.and_then(|before| before.spread(name)) {
            Some(before) => now.since(before),
            None => now.clone(),
        })
    }

    /// Returns all values of histogram `name` since the start.
    pub(crate) fn whole_spread(&self, name: &str) -> Option<&Spread> {
        self.now.spread(name)
    }

    /// Returns the number of values per second that were added to histogram `name`.
    pub(crate) fn spread_rate(&self, name: &str) -> Option<f64> {
        self.before?;
        Some(self.spread(name)?.count as f64 / self.seconds)
    }

    /// Returns the commands that were called, most called first.
    pub(crate) fn commands(&self) -> Vec<CommandRow> {
        let mut rows: Vec<_> = self
            .now
            .commands()
            .filter_map(|(name, _)| self.command(name))
            .filter(|row| row.spread.count > 0)
            .collect();
        rows.sort_by(|a, b| b.rate.total_cmp(&a.rate).then_with(|| a.name.cmp(&b.name)));
        rows
    }

    fn command(&self, name: &str) -> Option<CommandRow> {
        let spread = self.spread(&format!("command_{name}"))?;
        let failures = self.before.and_then(|before| {
            let (now, then) = (self.now.failures(name)?, before.failures(name).unwrap_or(0));
            Some(now.checked_sub(then)? as f64 / self.seconds)
        });
        Some(CommandRow {
            name: name.to_owned(),
            rate: spread.count as f64 / self.seconds,
            spread,
            failures,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_sync::time::{Duration, Instant, now};

    fn sample(text: &str, at: Instant) -> Sample {
        Sample::parse(&format!("pando_version:1\r\nrun_id:a\r\n{text}"), at).unwrap()
    }

    #[test]
    fn rates_are_differences_by_seconds() {
        let begun = now();
        let before = sample(
            "gets_total:100\ngets_missed_total:10\nkeyspace_hits:5",
            begun,
        );
        let text = "gets_total:500\ngets_missed_total:110\nkeyspace_hits:1";
        let after = sample(text, begun + Duration::from_secs(2));
        let figures = Figures::new(&after, Some(&before));
        assert_eq!(figures.rate("gets_total"), Some(200.0));
        assert_eq!(figures.gets_cached(), Some(0.75));
        assert_eq!(figures.ratio("gets_missed_total", "gets_total"), Some(0.25));
        assert_eq!(figures.rate("keyspace_hits"), None, "the counter was reset");
        assert_eq!(figures.rate("nosuch"), None);
        let first = Figures::new(&after, None);
        assert!(first.is_first() && first.rate("gets_total").is_none());
    }

    /// Figures of another run of the server are not subtracted.
    #[test]
    fn another_run_is_not_compared() {
        let begun = now();
        let before = sample("gets_total:100", begun);
        let later = begun + Duration::from_secs(1);
        let other = Sample::parse("pando_version:1\nrun_id:b\ngets_total:500", later).unwrap();
        assert!(Figures::new(&other, Some(&before)).is_first());
    }

    #[test]
    fn commands_come_by_rate_with_their_percentiles_of_the_interval() {
        let begun = now();
        let before = "command_get:count=1,sum=9,buckets=9:1\n\
                      command_set:count=5,sum=5,buckets=1:5\n\
                      cmdstat_get:calls=1,rejected_calls=0,failed_calls=1";
        let after = "command_get:count=5,sum=409,buckets=9:1 100:4\n\
                     command_set:count=5,sum=5,buckets=1:5\n\
                     command_mget:count=8,sum=8,buckets=1:8\n\
                     cmdstat_get:calls=5,rejected_calls=1,failed_calls=2";
        let before = sample(before, begun);
        let after = sample(after, begun + Duration::from_secs(2));
        let rows = Figures::new(&after, Some(&before)).commands();
        let names: Vec<_> = rows.iter().map(|row| (&row.name[..], row.rate)).collect();
        assert_eq!(names, [("mget", 4.0), ("get", 2.0)], "set was not called");
        assert_eq!(rows[1].spread.percentile(0.5), Some(100));
        assert_eq!(rows[1].failures, Some(1.0));
    }

    #[test]
    fn other_servers_are_refused() {
        assert!(Sample::parse("redis_version:7.0.0\n", now()).is_err());
    }
}
