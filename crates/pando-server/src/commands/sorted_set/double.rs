//! Scores as text, as `d2string` of Redis 7.2 (`util.c`, `deps/fpconv`) prints them.
//!
//! Whole numbers up to 2^62 are printed as integers. Of any other number the fewest digits are
//! printed that tell it from all others, D digits that are the whole number d, so that the number
//! is d * 10^K:
//!
//! - if K >= 0 and its first digit is at most 6 places before that of d: d and K zeros;
//! - if K < 0, and it is above -7 or the first digit is at most 3 places from the point: with a
//!   point, and a zero before it if there is no digit;
//! - else with one digit before the point, `e`, a sign, and the exponent without zeros before it.

/// Returns the text of a score.
pub(in crate::commands) fn text(value: f64) -> String {
    /// Largest whole number that is printed as an integer.
    const WHOLE_MAX: f64 = (1_u64 << 62) as f64;
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    if value.abs() <= WHOLE_MAX && value.trunc() == value {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is a whole number, and small enough"
        )]
        let whole = value as i64;
        return whole.to_string();
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let (digits, first) = digits(&format!("{:e}", value.abs()));
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let shift = first - (count - 1);
    let body = if shift >= 0 && first.abs() < count + 7 {
        format!("{digits}{}", "0".repeat(shift.unsigned_abs() as usize))
    } else if shift < 0 && (shift > -7 || first.abs() < 4) {
        with_point(&digits, first)
    } else {
        with_exponent(&digits, first)
    };
    format!("{sign}{body}")
}

/// Returns the text that `%.17g` of C makes of it: ZSCAN shows scores so once the set is large.
pub(super) fn text_of_17_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return text(value);
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let (digits, first) = digits(&format!("{:.16e}", value.abs()));
    let short = digits.trim_end_matches('0');
    let body = if (-4..17).contains(&first) {
        let before = usize::try_from(first + 1).unwrap_or(0);
        match short.len() > before {
            true => with_point(short, first),
            false => digits[..before].to_owned(),
        }
    } else {
        let mantissa = with_exponent(short, first);
        match (mantissa.rsplit_once(['+', '-']), first.abs() < 10) {
            (Some((front, _)), true) => format!("{front}-0{}", first.abs()),
            _ => mantissa,
        }
    };
    format!("{sign}{body}")
}

/// Splits text like `1.25e-7` into its digits and the exponent of the first one.
fn digits(scientific: &str) -> (String, i32) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let digits = mantissa.chars().filter(char::is_ascii_digit).collect();
    (digits, exponent.parse().unwrap_or(0))
}

/// Returns `digits` with a point; the first one counts 10^`first`.
fn with_point(digits: &str, first: i32) -> String {
    match usize::try_from(first) {
        Ok(first) => format!("{}.{}", &digits[..=first], &digits[first + 1..]),
        Err(_) => {
            let zeros = "0".repeat(first.unsigned_abs() as usize - 1);
            format!("0.{zeros}{digits}")
        }
    }
}

fn with_exponent(digits: &str, first: i32) -> String {
    let (head, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if first < 0 { '-' } else { '+' };
    format!("{head}{point}{rest}e{sign}{}", first.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scores_print_as_in_redis() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (3.0, "3"),
            (-17.0, "-17"),
            (4_503_599_627_370_496.0, "4503599627370496"),
            (2_f64.powi(62), "4611686018427387904"),
            (-(2_f64.powi(60)), "-1152921504606846976"),
            (2_f64.powi(63), "9223372036854776000"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (3.5, "3.5"),
            (-1.25, "-1.25"),
            (100.125, "100.125"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (0.0012345678, "0.0012345678"),
            (1.5e-10, "1.5e-10"),
            (1e18, "1000000000000000000"),
            (1e19, "1e+19"),
            (1e21, "1e+21"),
            (1e30, "1e+30"),
            (1.5e300, "1.5e+300"),
            (1.234_567_890_123_456_7e20, "123456789012345670000"),
            (-1e-100, "-1e-100"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (std::f64::consts::PI, "3.141592653589793"),
        ];
        for (value, expected) in cases {
            assert_eq!(text(value), expected);
        }
    }

    #[test]
    fn seventeen_digits_print_as_in_c() {
        let cases = [
            (0.1, "0.10000000000000001"),
            (3.5, "3.5"),
            (100.0, "100"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1e-4, "0.0001"),
            (1e-5, "1.0000000000000001e-05"),
            (1.5e-10, "1.5e-10"),
            (-2.5e100, "-2.4999999999999999e+100"),
            (-0.0, "-0"),
            (f64::INFINITY, "inf"),
        ];
        for (value, expected) in cases {
            assert_eq!(text_of_17_digits(value), expected);
        }
    }

    proptest! {
        #[test]
        fn any_score_comes_back_from_its_text(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            if !value.is_nan() {
                prop_assert_eq!(text(value).parse::<f64>().unwrap(), value);
                prop_assert_eq!(text_of_17_digits(value).parse::<f64>().unwrap(), value);
            }
        }
    }
}
