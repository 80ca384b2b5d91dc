//! Scores as text, as `d2string` of Redis 7.2 (`util.c`, `deps/fpconv`) prints them.
//!
//! Whole numbers up to 2^62 are printed as integers. Of any other number the fewest digits are
//! printed that tell it from all others, D digits that are the whole number d, so that the number
//! is d * 10^K:
//!
//! - if K is 0 to 7: d and K zeros;
//! - if K < 0, and it is above -7 or the first digit is at most 3 places from the point: with a
//!   point, and a zero before it if there is no digit;
//! - else with one digit before the point, `e`, a sign, and the exponent without zeros before it.

use std::fmt;
use std::io::Write as _;

/// Bytes for 17 digits, a sign, a point, and as many zeros as go with them.
const SIZE: usize = 32;

/// The text of a number.
#[derive(Debug, Default)]
pub(in crate::commands) struct Text {
    bytes: [u8; SIZE],
    length: usize,
}

impl Text {
    fn of(text: &[u8]) -> Self {
        let mut of = Self::default();
        of.push(text);
        of
    }

    /// Returns the text.
    pub(in crate::commands) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, text: &[u8]) {
        let end = self.length + text.len();
        self.bytes[self.length..end].copy_from_slice(text);
        self.length = end;
    }

    fn zeros(&mut self, count: usize) {
        (0..count).for_each(|_| self.push(b"0"));
    }

    /// Adds a number as a whole one: its digits, and zeros up to the point.
    fn without_point(&mut self, decimal: &Decimal) {
        self.push(decimal.digits());
        self.zeros(decimal.before_point().saturating_sub(decimal.count));
    }

    /// Adds a number that has digits behind its point.
    fn with_point(&mut self, decimal: &Decimal) {
        let (before, after) = decimal.digits().split_at(decimal.before_point());
        self.push(if before.is_empty() { b"0" } else { before });
        self.push(b".");
        self.zeros(usize::try_from(-decimal.first - 1).unwrap_or(0));
        self.push(after);
    }

    /// Adds a number with one digit before its point, and an exponent of `least` digits or more.
    fn with_exponent(&mut self, decimal: &Decimal, least: usize) {
        let (head, rest) = decimal.digits().split_at(1);
        self.push(head);
        if !rest.is_empty() {
            self.push(b".");
            self.push(rest);
        }
        self.push(if decimal.first < 0 { b"e-" } else { b"e+" });
        let mut exponent = itoa::Buffer::new();
        let exponent = exponent.format(decimal.first.unsigned_abs());
        self.zeros(least.saturating_sub(exponent.len()));
        self.push(exponent.as_bytes());
    }
}

/// A number above zero in decimal digits, of which neither the first nor the last is 0.
#[derive(Debug, Default)]
struct Decimal {
    digits: [u8; Self::DIGITS],
    count: usize,
    /// The first digit counts 10 to the power of this.
    first: i32,
}

impl Decimal {
    /// So many digits tell any number from all others.
    const DIGITS: usize = 17;

    /// Returns the fewest digits that tell a number from all others, of those the nearest ones.
    fn shortest(value: f64) -> Self {
        Self::with_few_places(value).unwrap_or_else(|| Self::scientific(format_args!("{value:e}")))
    }

    /// Returns the digits of a number with a few places behind its point, as scores often are.
    ///
    /// Its digits are exact as a double, and so is the power of ten by which they are divided, so
    /// the quotient is what reading the text gives (William Clinger, How to read floating-point
    /// numbers accurately, 1990). Numbers with so many places lie farther apart than doubles do, as
    /// long as they have less than 52 bits, so no other one is this double; and those with fewer
    /// places were tried before.
    fn with_few_places(value: f64) -> Option<Self> {
        const POWERS: [(i32, f64); 6] =
            [(1, 1e1), (2, 1e2), (3, 1e3), (4, 1e4), (5, 1e5), (6, 1e6)];
        const MOST: f64 = (1_u64 << 52) as f64;
        for (places, power) in POWERS {
            let all = (value * power).round_ties_even();
            if all >= MOST {
                return None;
            }
            if all / power == value {
                let mut text = itoa::Buffer::new();
                let mut decimal = Self::default();
                decimal.add(text.format(integer(all)).as_bytes());
                // The last digit is so many places behind the point.
                decimal.first = -places - decimal.last();
                return Some(decimal);
            }
        }
        None
    }

    /// Reads a number above zero that is written like `1.25e-7`.
    fn scientific(number: fmt::Arguments<'_>) -> Self {
        let mut text = [0; SIZE];
        let mut rest = &mut text[..];
        rest.write_fmt(number)
            .expect("17 digits and an exponent are shorter");
        let left = rest.len();
        let text = &text[..SIZE - left];
        let at = text.iter().position(|byte| *byte == b'e');
        let (mantissa, exponent) = text.split_at(at.unwrap_or(text.len()));
        let exponent = exponent
            .get(1..)
            .and_then(|text| std::str::from_utf8(text).ok());
        let mut decimal = Self {
            first: exponent.and_then(|text| text.parse().ok()).unwrap_or(0),
            ..Self::default()
        };
        decimal.add(&mantissa[..1]);
        decimal.add(mantissa.get(2..).unwrap_or_default());
        while decimal.digits().ends_with(b"0") {
            decimal.count -= 1;
        }
        decimal
    }

    fn add(&mut self, digits: &[u8]) {
        let end = self.count + digits.len();
        self.digits[self.count..end].copy_from_slice(digits);
        self.count = end;
    }

    fn digits(&self) -> &[u8] {
        &self.digits[..self.count]
    }

    /// Returns the number of places before the point.
    fn before_point(&self) -> usize {
        usize::try_from(self.first + 1).unwrap_or(0)
    }

    /// Returns the place of the last digit: it counts 10 to the power of this.
    fn last(&self) -> i32 {
        self.first + 1 - i32::try_from(self.count).unwrap_or(0)
    }
}

/// Returns the text of a number that has no digits, or that is 0.
fn text_without_digits(value: f64) -> Option<Text> {
    let text: &[u8] = match value {
        _ if value.is_nan() => b"nan",
        f64::INFINITY => b"inf",
        f64::NEG_INFINITY => b"-inf",
        0.0 if value.is_sign_negative() => b"-0",
        0.0 => b"0",
        _ => return None,
    };
    Some(Text::of(text))
}

/// Returns a whole number of up to 62 bits as an integer.
#[expect(
    clippy::cast_possible_truncation,
    reason = "callers have seen that it is whole, and small enough"
)]
fn integer(value: f64) -> i64 {
    value as i64
}

fn sign_of(value: f64) -> Text {
    Text::of(if value < 0.0 { b"-" } else { b"" })
}

/// Returns the text of a score.
pub(in crate::commands) fn text(value: f64) -> Text {
    /// Largest whole number that is printed as an integer.
    const WHOLE_MAX: f64 = (1_u64 << 62) as f64;
    if let Some(text) = text_without_digits(value) {
        return text;
    }
    if value.abs() <= WHOLE_MAX && value.trunc() == value {
        return Text::of(itoa::Buffer::new().format(integer(value)).as_bytes());
    }
    let decimal = Decimal::shortest(value.abs());
    let last = decimal.last();
    let mut text = sign_of(value);
    if (0..8).contains(&last) {
        text.without_point(&decimal);
    } else if last < 0 && (last > -7 || decimal.first.abs() < 4) {
        text.with_point(&decimal);
    } else {
        text.with_exponent(&decimal, 1);
    }
    text
}

/// Returns the text that `%.17g` of C makes of it: ZSCAN shows scores so once the set is large.
pub(super) fn text_of_17_digits(value: f64) -> Text {
    if let Some(text) = text_without_digits(value) {
        return text;
    }
    let decimal = Decimal::scientific(format_args!("{:.16e}", value.abs()));
    let mut text = sign_of(value);
    match decimal.first {
        -4..17 if decimal.last() < 0 => text.with_point(&decimal),
        -4..17 => text.without_point(&decimal),
        _ => text.with_exponent(&decimal, 2),
    }
    text
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
            (1.234_567_890_123_4e20, "123456789012340000000"),
            (1.234_567_890_123e20, "1.234567890123e+20"),
            (-1e-100, "-1e-100"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (std::f64::consts::PI, "3.141592653589793"),
        ];
        for (value, expected) in cases {
            assert_eq!(text(value).as_bytes(), expected.as_bytes());
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
            assert_eq!(text_of_17_digits(value).as_bytes(), expected.as_bytes());
        }
    }

    fn number_in(text: &Text) -> f64 {
        let text = std::str::from_utf8(text.as_bytes()).unwrap();
        text.parse().unwrap()
    }

    proptest! {
        #[test]
        fn few_places_are_the_shortest_digits(
            most in 0_i64..450_000_000_000_000,
            last in 1_i64..10,
            places in 1..9,
        ) {
            #[expect(clippy::cast_precision_loss, reason = "it has 52 bits")]
            let value = (most * 10 + last) as f64 / 10_f64.powi(places);
            let wanted = Decimal::scientific(format_args!("{value:e}"));
            match Decimal::with_few_places(value) {
                Some(found) => {
                    prop_assert_eq!((found.digits(), found.first), (wanted.digits(), wanted.first));
                }
                // Of more than 15 digits, the product may be too far away.
                None => prop_assert!(places > 6 || most >= 100_000_000_000_000),
            }
        }

        #[test]
        fn any_score_comes_back_from_its_text(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            if !value.is_nan() {
                prop_assert_eq!(number_in(&text(value)), value);
                prop_assert_eq!(number_in(&text_of_17_digits(value)), value);
            }
        }
    }
}
