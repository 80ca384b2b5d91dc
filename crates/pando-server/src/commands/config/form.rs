//! Forms that values of parameters have, and the refusals of values that have them not, in the
//! words of Redis.

use std::borrow::Cow;

use pando_resp::parse_integer;

/// Why a value is refused.
pub(super) type Refusal = Cow<'static, str>;

/// What a value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A number between two bounds.
    Integer(i64, i64),
    /// A number of bytes between two bounds, with or without a unit.
    Bytes(i64, i64),
    /// `yes` or `no`.
    Switch,
    /// One of some words.
    OneOf(&'static [&'static str]),
    /// Anything that is text.
    Text,
    /// Pairs of seconds and changes.
    Save,
}

impl Form {
    /// Checks `value`, and returns it as CONFIG GET shows it.
    ///
    /// # Errors
    /// It has another form, or is out of bounds.
    pub(super) fn read(self, value: &[u8]) -> Result<String, Refusal> {
        match self {
            Self::Integer(least, most) => {
                integer(value, least, most).map(|number| number.to_string())
            }
            Self::Bytes(least, most) => {
                let bytes = bytes(value).and_then(|bytes| i64::try_from(bytes).ok());
                let bytes = bytes.ok_or("argument must be a memory value")?;
                within(bytes, least, most).map(|bytes| bytes.to_string())
            }
            Self::Switch => switch(value).map(|on| if on { "yes" } else { "no" }.to_owned()),
            Self::OneOf(words) => one_of(value, words).map(str::to_owned),
            Self::Text => match std::str::from_utf8(value) {
                Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
                _ => Err("argument must be text".into()),
            },
            Self::Save => save(value),
        }
    }
}

/// Reads `yes` or `no`, in any case.
pub(super) fn switch(value: &[u8]) -> Result<bool, Refusal> {
    match value.to_ascii_lowercase().as_slice() {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".into()),
    }
}

/// Reads a number from `least` to `most`.
pub(super) fn integer(value: &[u8], least: i64, most: i64) -> Result<i64, Refusal> {
    let number = parse_integer(value).ok_or("argument couldn't be parsed into an integer")?;
    within(number, least, most)
}

fn within(number: i64, least: i64, most: i64) -> Result<i64, Refusal> {
    match (least..=most).contains(&number) {
        true => Ok(number),
        false => Err(format!("argument must be between {least} and {most} inclusive").into()),
    }
}

/// Returns the one of `words` that `value` is, in any case.
pub(super) fn one_of(value: &[u8], words: &[&'static str]) -> Result<&'static str, Refusal> {
    let found = words
        .iter()
        .find(|word| word.as_bytes().eq_ignore_ascii_case(value));
    found.copied().ok_or_else(|| {
        let words = words.join(", ");
        format!("argument(s) must be one of the following: {words}").into()
    })
}

/// Returns the bytes of a number with a unit: `k` is 1000 of them, `kb` 1024.
pub(super) fn bytes(text: &[u8]) -> Option<u64> {
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

/// Returns the bytes of a number with a unit, or a percentage up to 100 as a negative number.
pub(super) fn bytes_or_percent(text: &[u8]) -> Result<i64, Refusal> {
    let number = match text.strip_suffix(b"%") {
        Some(percent) => parse_integer(percent).filter(|of| *of >= 0).map(|of| -of),
        None => bytes(text).and_then(|bytes| i64::try_from(bytes).ok()),
    };
    match number.ok_or("argument must be a memory or percent value")? {
        ..-100 => Err("percentage argument must be less or equal to 100".into()),
        number => Ok(number),
    }
}

/// Reads pairs of seconds, from 1 on, and changes, from 0 on.
fn save(value: &[u8]) -> Result<String, Refusal> {
    let words: Vec<i64> = value
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .map(|word| parse_integer(word).unwrap_or(-1))
        .collect();
    let mut pairs = words.chunks_exact(2);
    let all_fit = pairs.all(|pair| pair[0] >= 1 && pair[1] >= 0);
    if !words.len().is_multiple_of(2) || !all_fit {
        return Err("Invalid save parameters".into());
    }
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    Ok(words.join(" "))
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

    #[test]
    fn values_are_shown_in_one_way() {
        for (form, value, expected) in [
            (Form::Bytes(0, i64::MAX), "2kb", Ok("2048")),
            (
                Form::Bytes(4096, i64::MAX),
                "1",
                Err("argument must be between 4096 and 9223372036854775807 inclusive"),
            ),
            (Form::Switch, "YES", Ok("yes")),
            (Form::OneOf(&["a", "b"]), "B", Ok("b")),
            (
                Form::OneOf(&["a", "b"]),
                "c",
                Err("argument(s) must be one of the following: a, b"),
            ),
            (Form::Save, " 900 1  300 10 ", Ok("900 1 300 10")),
            (Form::Save, "", Ok("")),
            (Form::Save, "900", Err("Invalid save parameters")),
            (Form::Save, "0 1", Err("Invalid save parameters")),
            (Form::Save, "1 x", Err("Invalid save parameters")),
        ] {
            let read = form.read(value.as_bytes());
            let expected = expected.map(str::to_owned).map_err(Cow::Borrowed);
            assert_eq!(read, expected, "{value}");
        }
    }
}
