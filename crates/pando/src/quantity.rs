//! Sizes and durations as people write them, parsed and printed. The comparison with other engines
//! (`peers/`) compiles this file, too, so it uses nothing of this crate.

use pando_sync::time::Duration;

/// Returns a number and the unit after it, in lower case.
fn split(text: &str) -> (&str, String) {
    let text = text.trim();
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
    (&text[..end], text[end..].trim().to_ascii_lowercase())
}

/// Parses a number of bytes with an optional unit; units are powers of 1,024.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no size: a number and k, m, g or t, as in 512m or 1.5g");
    let (number, unit) = split(text);
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(wrong);
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * (1_u64 << shift) as f64;
    if bytes.is_finite() && bytes < u64::MAX as f64 {
        Ok(whole(bytes))
    } else {
        Err(wrong())
    }
}

/// Returns the number without its fraction; 0 for what is negative or no number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what does not fit becomes the nearest number that does"
)]
pub(crate) fn whole(number: f64) -> u64 {
    number as u64
}

/// Parses a duration: seconds, or a number with a unit.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no duration: seconds, or a number and ms, s, m or h");
    let (number, unit) = split(text);
    let seconds: f64 = number.parse().map_err(|_| wrong())?;
    let scale = match unit.as_str() {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds * scale).map_err(|_| wrong())
}

/// Formats a number of bytes for people.
pub(crate) fn show_size(bytes: u64) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes >= 1 << shift {
            return format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64);
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::{Duration, parse_duration, parse_size, show_size};

    #[test]
    fn sizes_take_all_units_in_any_case() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("4 KiB", 4096),
            ("16M", 16 << 20),
            ("16mb", 16 << 20),
            ("1g", 1 << 30),
            ("1.5GiB", 3 << 29),
            ("2tb", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "1x",
            "1e3",
            "1..2",
            "99999999999g",
            "99999999999.5g",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_seconds_unless_they_say() {
        for (text, ms) in [
            ("2", 2000),
            ("0.5", 500),
            ("250ms", 250),
            ("3s", 3000),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(ms)),
                "{text}"
            );
        }
        for text in ["", "ms", "-1", "1d", "1,5"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_in_their_unit() {
        assert_eq!(show_size(512), "512 bytes");
        assert_eq!(show_size(3 << 29), "1.5 GiB");
    }
}
