//! The parameter `client-output-buffer-limit`: how much may wait for a subscriber.
//!
//! Replies to commands have no such limit: a client that does not read them is executed no further.

use pando_resp::parse_integer;

use super::form::{Refusal, bytes};
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
pub(super) fn set(shared: &Shared, value: &[u8], apply: bool) -> Result<(), Refusal> {
    let words: Vec<&[u8]> = value
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err(WRONG_COUNT.into());
    }
    for of_class in words.chunks_exact(4) {
        let class = of_class[0].to_ascii_lowercase();
        if !matches!(&*class, b"normal" | b"slave" | b"replica" | b"pubsub") {
            return Err(WRONG_CLASS.into());
        }
        let number = |word| parse_integer(word).and_then(|number| u64::try_from(number).ok());
        let limits = (bytes(of_class[1]), bytes(of_class[2]), number(of_class[3]));
        let (Some(hard), Some(soft), Some(seconds)) = limits else {
            return Err(WRONG_LIMIT.into());
        };
        if class != b"pubsub" {
            if (hard, soft, seconds) != UNLIMITED {
                return Err(FIXED_CLASS.into());
            }
        } else if apply {
            shared.channels.limits.set(hard, soft, seconds);
        }
    }
    Ok(())
}
