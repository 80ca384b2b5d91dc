//! Numbers that clients send as scores, weights and times to wait: what `strtod` of C takes.

/// A number, and whether it was too large or too small for a double.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Parsed {
    value: f64,
    out_of_range: bool,
}

/// Returns the score that the whole of `text` spells; NaN is none.
pub(crate) fn parse_score(text: &[u8]) -> Option<f64> {
    let parsed = parse(text).filter(|parsed| !parsed.out_of_range)?;
    Some(parsed.value)
}

/// Returns the number that `text` spells: infinite if it is too large, 0 if it is too small.
#[cfg(feature = "scripts")]
pub(crate) fn parse_lenient(text: &[u8]) -> Option<f64> {
    Some(parse(text)?.value)
}

/// Returns the number of a bound: as lenient as Redis, which takes blanks before it, ends it at a
/// zero byte, and makes an infinity of what is too large.
pub(crate) fn parse_bound(text: &[u8]) -> Option<f64> {
    let end = text.iter().position(|byte| *byte == 0);
    let text = &text[..end.unwrap_or(text.len())];
    if text.is_empty() {
        return Some(0.0);
    }
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = text.iter().position(|byte| !is_blank(byte))?;
    Some(parse(&text[start..])?.value)
}

/// Returns the number of seconds that `text` spells. One that is too large is infinite. One that is
/// too small for a double is still none that means for ever, as 0 does.
pub(crate) fn parse_seconds(text: &[u8]) -> Option<f64> {
    let Parsed {
        value,
        out_of_range,
    } = parse(text)?;
    let is_lost = out_of_range && value == 0.0;
    Some(if is_lost {
        f64::MIN_POSITIVE.copysign(value)
    } else {
        value
    })
}

fn parse(text: &[u8]) -> Option<Parsed> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let parsed = match digits.as_bytes() {
        // Rust would take a second sign.
        [b'+' | b'-', ..] => return None,
        [b'0', b'x' | b'X', hex @ ..] => hexadecimal(hex)?,
        _ => decimal(digits)?,
    };
    let value = if negative {
        -parsed.value
    } else {
        parsed.value
    };
    Some(Parsed { value, ..parsed })
}

fn decimal(text: &str) -> Option<Parsed> {
    let value: f64 = text.parse().ok()?;
    if value.is_nan() {
        return None;
    }
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text).as_bytes();
    let out_of_range = if value == 0.0 {
        mantissa.iter().any(|byte| (b'1'..=b'9').contains(byte))
    } else {
        value.is_infinite() && mantissa.iter().any(u8::is_ascii_digit)
    };
    Some(Parsed {
        value,
        out_of_range,
    })
}

/// Parses what comes behind `0x`: hexadecimal digits with a point, and an exponent of two.
fn hexadecimal(text: &[u8]) -> Option<Parsed> {
    let end = text.iter().position(|byte| matches!(byte, b'p' | b'P'));
    let (mantissa, exponent) = text.split_at(end.unwrap_or(text.len()));
    let mut exponent = match exponent {
        [] => 0,
        [_, exponent @ ..] => exponent_of(exponent)?,
    };
    let (mut bits, mut rest, mut any, mut behind_point) = (0_u64, false, false, false);
    for byte in mantissa {
        if *byte == b'.' && !behind_point {
            behind_point = true;
            continue;
        }
        let digit = char::from(*byte).to_digit(16)?;
        any = true;
        // Digits that find no place any more only say whether there is more than nothing.
        if bits >> 60 == 0 {
            bits = bits << 4 | u64::from(digit);
            exponent -= i64::from(behind_point) * 4;
        } else {
            rest |= digit != 0;
            exponent += i64::from(!behind_point) * 4;
        }
    }
    any.then(|| scaled(bits, rest, exponent))
}

/// Returns a decimal exponent; one that is far too large counts as a large one.
fn exponent_of(text: &[u8]) -> Option<i64> {
    const MOST: i64 = 1 << 40;
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: i64, digit: &u8| (sum * 10 + i64::from(digit - b'0')).min(MOST);
    let value = digits.iter().fold(0, add);
    Some(if negative { -value } else { value })
}

/// Returns the double that is nearest to `bits` * 2^`exponent`, or a little more if there is a
/// `rest`; of two that are as near, the even one.
fn scaled(bits: u64, rest: bool, exponent: i64) -> Parsed {
    if bits == 0 {
        return Parsed {
            value: 0.0,
            out_of_range: false,
        };
    }
    let length = i64::from(64 - bits.leading_zeros());
    let top = length - 1 + exponent;
    if top > 1023 {
        return Parsed {
            value: f64::INFINITY,
            out_of_range: true,
        };
    }
    let lowest = (top - 52).max(-1074);
    let shift = lowest - exponent;
    let kept = if shift <= 0 {
        // At most 53 bits are left.
        bits << shift.unsigned_abs().min(63)
    } else if shift > 64 {
        0
    } else {
        let wide = u128::from(bits);
        let (kept, cut) = (wide >> shift, wide & ((1 << shift) - 1));
        let half = 1_u128 << (shift - 1);
        let up = cut > half || cut == half && (rest || kept & 1 == 1);
        u64::try_from(kept).unwrap_or(0) + u64::from(up)
    };
    let value = kept as f64 * power_of_two(lowest);
    Parsed {
        value,
        out_of_range: value == 0.0 || value.is_infinite(),
    }
}

/// Returns 2^`exponent`, which is from -1074 to 971.
fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(match u64::try_from(exponent + 1023) {
        Ok(biased) if biased > 0 => biased << 52,
        _ => 1 << (exponent + 1074).max(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scores_are_taken_as_redis_takes_them() {
        let good: [(&str, f64); 18] = [
            ("1", 1.0),
            ("+1.5", 1.5),
            ("-.5", -0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("0", 0.0),
            ("0e999", 0.0),
            ("inf", f64::INFINITY),
            ("+INF", f64::INFINITY),
            ("-infinity", f64::NEG_INFINITY),
            ("0x10", 16.0),
            ("-0X1.8p1", -3.0),
            ("0x.8", 0.5),
            ("0x1p-1074", 5e-324),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x20000000000001", 9_007_199_254_740_992.0),
            ("0x20000000000003", 9_007_199_254_740_996.0),
            ("5e-324", 5e-324),
        ];
        for (text, value) in good {
            assert_eq!(parse_score(text.as_bytes()), Some(value), "{text}");
        }
        // A bit more than half of the last place: up.
        let up = parse_score(b"0x2000000000000100000000000000001").unwrap();
        assert_eq!(up, 9_007_199_254_740_994.0 * 2_f64.powi(68));
        let bad = [
            "",
            " 1",
            "1 ",
            "nan",
            "-nan",
            "nan(1)",
            "1e",
            "0x",
            "0x.",
            "0xp1",
            "0x1p",
            "--1",
            "+-1",
            "1e400",
            "-1e400",
            "1e-400",
            "0x1p1024",
            "0x1p-1075",
            "0x1p-9999999999999999999999",
            "a",
            "1_000",
            "0x1.8.0",
            "in",
            "infinit",
        ];
        for text in bad {
            assert_eq!(parse_score(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_score(b"1\0"), None);
        assert_eq!(parse_score(b"\xff"), None);
    }

    #[test]
    fn seconds_are_never_none_that_were_some() {
        for (text, value) in [
            ("0", 0.0),
            ("0x1p-3", 0.125),
            ("1e400", f64::INFINITY),
            ("inf", f64::INFINITY),
            ("1e-400", f64::MIN_POSITIVE),
            ("0x1p-9999", f64::MIN_POSITIVE),
            ("-1e-400", -f64::MIN_POSITIVE),
        ] {
            assert_eq!(parse_seconds(text.as_bytes()), Some(value), "{text}");
        }
        for text in ["", " 1", "1 ", "nan", "0x", "x", "1\0"] {
            assert_eq!(parse_seconds(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn bounds_are_taken_more_leniently() {
        assert_eq!(parse_bound(b""), Some(0.0));
        assert_eq!(parse_bound(b" \t1"), Some(1.0));
        assert_eq!(parse_bound(b"1\0what"), Some(1.0));
        assert_eq!(parse_bound(b"1e400"), Some(f64::INFINITY));
        assert_eq!(parse_bound(b"1e-400"), Some(0.0));
        for text in [&b" "[..], b"1 ", b"nan", b"x"] {
            assert_eq!(parse_bound(text), None);
        }
    }

    proptest! {
        #[test]
        fn hexadecimal_digits_are_exact(bits in any::<u64>()) {
            let value = f64::from_bits(bits).abs();
            if value.is_finite() && value >= f64::MIN_POSITIVE {
                let exponent = (bits >> 52 & 0x7ff).cast_signed() - 1023;
                let text = format!("0x1.{:013x}p{exponent}", bits & ((1 << 52) - 1));
                prop_assert_eq!(parse_score(text.as_bytes()), Some(value));
            }
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = (parse_score(&text), parse_bound(&text));
        }

        #[test]
        fn any_letters_are_parsed_without_panic(text in "[+-]?0x[0-9a-f.p+-]{0,30}") {
            let _ = (parse_score(text.as_bytes()), parse_bound(text.as_bytes()));
        }
    }
}
