//! How numbers are written in little space: three digits and a unit.

use crate::quantity::{show_size, whole};

/// Shown for an unknown figure.
pub(crate) const UNKNOWN: &str = "-";

/// Formats a count, in thousands and so on.
pub(crate) fn count(value: f64) -> String {
    for (unit, scale) in [("G", 1e9), ("M", 1e6), ("k", 1e3)] {
        // A number that would be rounded to 1000 of the smaller unit is one of this unit.
        if value >= scale * 0.9995 {
            return format!("{}{unit}", three_digits(value / scale));
        }
    }
    three_digits(value)
}

fn three_digits(value: f64) -> String {
    match value {
        _ if value >= 99.95 || value == value.trunc() => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats nanoseconds as a time.
pub(crate) fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        _ if ns < 999.5 => (ns, "ns"),
        _ if ns < 999.5e3 => (ns / 1e3, "us"),
        _ if ns < 999.5e6 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Formats bytes.
pub(crate) fn bytes(value: f64) -> String {
    show_size(whole(value)).replace(" bytes", " B")
}

/// Formats a share of a whole.
pub(crate) fn percent(share: f64) -> String {
    match share {
        _ if share > 0.9995 => "100 %".to_owned(),
        _ => format!("{:.1} %", share * 100.0),
    }
}

/// Formats seconds as days, hours and minutes.
pub(crate) fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts are shown with three significant digits and a unit.
    #[test]
    fn three_digits_are_enough() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (7.0, "7"),
            (42.25, "42.2"),
            (999.0, "999"),
            (999.9, "1.00k"),
            (1234.0, "1.23k"),
            (999_999.0, "1.00M"),
            (1.5e9, "1.50G"),
        ] {
            assert_eq!(count(value), text, "{value}");
        }
    }

    #[test]
    fn times_ages_and_sizes_have_their_unit() {
        for (ns, text) in [
            (850.0, "850 ns"),
            (1500.0, "1.50 us"),
            (12_300_000.0, "12.3 ms"),
            (999_999_999.0, "1.00 s"),
        ] {
            assert_eq!(time(ns), text);
        }
        for (seconds, text) in [
            (59, "59 s"),
            (61, "1 min 1 s"),
            (7260, "2 h 1 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(age(seconds), text);
        }
        assert_eq!(
            (bytes(512.9), bytes(2048.0)),
            ("512 B".into(), "2.0 KiB".into())
        );
        assert_eq!(
            (percent(0.9999), percent(0.25)),
            ("100 %".into(), "25.0 %".into())
        );
    }
}
