//! The parameter `client-output-buffer-limit`: how much may wait for a subscriber.
//!
//! Replies to commands have no such limit: a client that does not read them is executed no further.

use pando_resp::parse_integer;

use crate::shared::Shared;

const WRONG_COUNT: &str = "Wrong number of arguments in buffer limit configuration.";
const WRONG_CLASS: &str = "Invalid client class specified in buffer limit configuration.";
const WRONG_LIMIT: &str =
    "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
const FIXED_CLASS: &str = "only the limits of class pubsub can be changed";

/// What the classes have that cannot be changed: nothing is limited, and there are no replicas.
const UNLIMITED: (u64, u64, u64) = (0, 0, 0);

/// Returns the limits of all classes.
pub(super) fn get(shared: &Shared) -> String {
    let (hard, soft, seconds) = shared.channels.limits.get();
    format!("normal 0 0 0 slave 0 0 0 pubsub {hard} {soft} {seconds}")
}

/// Checks the limits of some classes, each with its name, and sets them if `apply`.
pub(super) fn set(shared: &Shared, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let words: Vec<&[u8]> = value
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err(WRONG_COUNT);
    }
    for of_class in words.chunks_exact(4) {
        let class = of_class[0].to_ascii_lowercase();
        if !matches!(&*class, b"normal" | b"slave" | b"replica" | b"pubsub") {
            return Err(WRONG_CLASS);
        }
        let number = |word| parse_integer(word).and_then(|number| u64::try_from(number).ok());
        let limits = (bytes(of_class[1]), bytes(of_class[2]), number(of_class[3]));
        let (Some(hard), Some(soft), Some(seconds)) = limits else {
            return Err(WRONG_LIMIT);
        };
        if class != b"pubsub" {
            if (hard, soft, seconds) != UNLIMITED {
                return Err(FIXED_CLASS);
            }
        } else if apply {
            shared.channels.limits.set(hard, soft, seconds);
        }
    }
    Ok(())
}

/// Returns the bytes of a number with a unit: `k` is 1000 of them, `kb` 1024.
fn bytes(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    let number = u64::try_from(parse_integer(number)?).ok()?;
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_redis() {
        for (text, expected) in [
            ("0", Some(0)),
            ("12b", Some(12)),
            ("3k", Some(3000)),
            ("3Kb", Some(3072)),
            ("1gb", Some(1 << 30)),
            ("", None),
            ("kb", None),
            ("1x", None),
            ("-1", None),
            ("18446744073709551615gb", None),
            ("9223372036854775807gb", None),
        ] {
            assert_eq!(bytes(text.as_bytes()), expected, "{text}");
        }
    }
}
