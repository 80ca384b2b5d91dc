//! Numbers of INCRBYFLOAT: decimal text in, decimal text out.
//!
//! Redis adds in 80-bit floating point and prints 17 digits after the point. Sums here are exact
//! decimals with 17 such digits, so that 0.1 + 0.2 is 0.3: in 128 bits if they fit, or digit by
//! digit.

use super::decimal_digits;

/// Number of digits after the point.
const PLACES: i32 = 17;
/// Longest text that is accepted as a number, as in Redis. Clients write doubles without exponents,
/// as the server itself does: 1e308 has 309 digits.
const TEXT_BYTES_MAX: usize = 5119;

/// A number parsed from text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Decimal<'a> {
    text: &'a str,
    /// The number in units of 10^-17, if it fits and is exact.
    exact: Option<i128>,
    nearest: f64,
}

/// Why there is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecimalError {
    /// The text is not a number.
    NotANumber,
    /// The sum is not finite.
    NotFinite,
}

impl<'a> Decimal<'a> {
    /// Reads decimal text, with or without an exponent; infinities are numbers, NaN is none.
    pub(crate) fn parse(text: &'a [u8]) -> Result<Self, DecimalError> {
        let text = std::str::from_utf8(text).map_err(|_| DecimalError::NotANumber)?;
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return Err(DecimalError::NotANumber);
        }
        let nearest: f64 = text.parse().map_err(|_| DecimalError::NotANumber)?;
        if nearest.is_nan() {
            return Err(DecimalError::NotANumber);
        }
        Ok(Self {
            text,
            exact: exact(text),
            nearest,
        })
    }

    /// Returns false for an infinity.
    pub(crate) fn is_finite(self) -> bool {
        self.nearest.is_finite()
    }

    /// Returns the sum as text, without trailing zeros.
    pub(crate) fn sum(self, other: Decimal<'_>) -> Result<String, DecimalError> {
        if let (Some(a), Some(b)) = (self.exact, other.exact)
            && let Some(sum) = a.checked_add(b)
        {
            return Ok(show(sum));
        }
        let sum = self.nearest + other.nearest;
        if !sum.is_finite() {
            return Err(DecimalError::NotFinite);
        }
        Ok(decimal_digits::sum(self.text, other.text))
    }
}

/// Returns finite decimal text in units of 10^-17; `None` if it does not fit or is not exact.
fn exact(text: &str) -> Option<i128> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, digits) = match mantissa.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let mut value: i128 = 0;
    let mut places: i32 = 0;
    let mut behind_point = false;
    for byte in digits {
        match byte {
            b'.' => behind_point = true,
            b'0'..=b'9' => {
                value = value
                    .checked_mul(10)?
                    .checked_add(i128::from(byte - b'0'))?;
                places += i32::from(behind_point);
            }
            _ => return None,
        }
    }
    let shift = exponent.checked_add(PLACES)?.checked_sub(places)?;
    let power = 10_i128.checked_pow(shift.unsigned_abs())?;
    let value = if shift >= 0 {
        value.checked_mul(power)?
    } else if value % power == 0 {
        value / power
    } else {
        return None;
    };
    Some(if negative { -value } else { value })
}

fn show(units: i128) -> String {
    let one = 10_u128.pow(PLACES.unsigned_abs());
    let (whole, rest) = (units.unsigned_abs() / one, units.unsigned_abs() % one);
    let sign = if units < 0 { "-" } else { "" };
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    let rest = format!("{rest:017}");
    format!("{sign}{whole}.{}", rest.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(a: &str, b: &str, expected: &str) {
        let sum = Decimal::parse(a.as_bytes())
            .unwrap()
            .sum(Decimal::parse(b.as_bytes()).unwrap());
        assert_eq!(sum.as_deref(), Ok(expected), "{a} + {b}");
    }

    #[test]
    fn sums_are_those_that_redis_prints() {
        check("10.50", "0.1", "10.6");
        check("0.1", "0.2", "0.3");
        check("5.0e3", "2.0e2", "5200");
        check("3", "-5", "-2");
        check("-0.5", "0.25", "-0.25");
        check("1", "-1", "0");
        check("17179869184", "1.5", "17179869185.5");
        check("1e30", "1", "1000000000000000000000000000001");
        check("0.3", "1e-18", "0.3");
        check("0", "-1e-20", "0");
        check("10.5", "-5e-1", "10");
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", " 1", "abc", "1 ", "nan", "0x"] {
            assert_eq!(
                Decimal::parse(text.as_bytes()),
                Err(DecimalError::NotANumber),
                "{text}"
            );
        }
        let huge = Decimal::parse(b"1.7e308").unwrap();
        assert_eq!(huge.sum(huge), Err(DecimalError::NotFinite));
        let mut long = vec![b'0'; 5119];
        assert!(Decimal::parse(&long).is_ok());
        long.push(b'0');
        assert!(Decimal::parse(&long).is_err());
    }
}
