//! Patterns of KEYS, SCAN, PSUBSCRIBE and CONFIG GET: `*`, `?`, `[a-z]`, `[^a]`, `\x`.
//!
//! The matcher remembers only one place to return to, the last star: so its work is at most the
//! length of the pattern times that of the text, and it needs no stack, whatever the pattern.

use std::cell::Cell;

/// Steps that the patterns of one run of a command may take beyond those that count as reading: a
/// tenth of a second, about.
const STEPS_MAX: u64 = 1 << 26;
/// Steps of one comparison that count as reading the text, for each of its bytes, and besides.
const STEPS_PER_BYTE: u64 = 16;
const STEPS_PER_TEXT: u64 = 1024;

/// The comparisons of one run of a command with patterns. A long pattern and a long text can take
/// their product in steps, minutes of them: what is more than usual is bounded together.
pub(crate) struct Comparisons {
    /// Steps that are left; `None` once there were too few.
    left: Cell<Option<u64>>,
}

impl Comparisons {
    /// Begins a run.
    pub(crate) fn new() -> Self {
        Self {
            left: Cell::new(Some(STEPS_MAX)),
        }
    }

    /// Returns true if `text` matches `pattern` as a whole, and false if that cannot be told in
    /// the steps that are left: then [`Comparisons::end`] says so.
    pub(crate) fn matches(&self, pattern: &[u8], text: &[u8]) -> bool {
        self.count(text, |steps| matches_within(pattern, text, steps))
    }

    /// Like [`Comparisons::matches`], but ignores the case of letters.
    pub(crate) fn matches_ignoring_case(&self, pattern: &[u8], text: &[u8]) -> bool {
        let same = |a: u8, b: u8| a.eq_ignore_ascii_case(&b);
        self.count(text, |steps| matches_with(pattern, text, same, steps))
    }

    fn count(&self, text: &[u8], compare: impl FnOnce(&mut u64) -> Option<bool>) -> bool {
        let Some(left) = self.left.get() else {
            return false;
        };
        let usual = STEPS_PER_BYTE * text.len() as u64 + STEPS_PER_TEXT;
        let mut steps = left + usual;
        let is_match = compare(&mut steps);
        self.left.set(is_match.map(|_| steps.min(left)));
        is_match.unwrap_or(false)
    }

    /// Ends the run.
    ///
    /// # Errors
    /// The text of the error reply, if a comparison was given up.
    pub(crate) fn end(&self) -> Result<(), &'static str> {
        match self.left.get() {
            Some(_) => Ok(()),
            None => Err("ERR the pattern takes too many steps to be compared with what is there"),
        }
    }
}

/// Returns true if `text` matches `pattern` as a whole, in at most so many steps, which are counted
/// down; `None` if there are too few.
pub(crate) fn matches_within(pattern: &[u8], text: &[u8], steps: &mut u64) -> Option<bool> {
    matches_with(pattern, text, |a, b| a == b, steps)
}

/// Returns the bytes that every text begins with that matches `pattern`.
pub(crate) fn prefix_of(pattern: &[u8]) -> Vec<u8> {
    let (mut prefix, mut p) = (Vec::new(), 0);
    while p < pattern.len() {
        match pattern[p] {
            b'*' | b'?' | b'[' => break,
            b'\\' if p + 1 < pattern.len() => p += 1,
            _ => {}
        }
        prefix.push(pattern[p]);
        p += 1;
    }
    prefix
}

fn matches_with(
    pattern: &[u8],
    text: &[u8],
    same: impl Fn(u8, u8) -> bool,
    steps: &mut u64,
) -> Option<bool> {
    let (mut p, mut t) = (0, 0);
    // For the last star: where the pattern continues, and how much text the star has consumed.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            let stars = stars_at(pattern, p);
            *steps = steps.checked_sub(stars as u64)?;
            p += stars;
            star = Some((p, t));
            continue;
        }
        *steps = steps.checked_sub(1)?;
        if p < pattern.len() {
            let (is_match, next) = one(pattern, p, text[t], &same);
            // Classes may be long.
            *steps = steps.checked_sub((next - p) as u64)?;
            if is_match {
                p = next;
                t += 1;
                continue;
            }
        }
        match star {
            Some((after, taken)) => {
                p = after;
                t = taken + 1;
                star = Some((after, t));
            }
            None => return Some(false),
        }
    }
    let stars = stars_at(pattern, p);
    *steps = steps.checked_sub(stars as u64)?;
    Some(p + stars == pattern.len())
}

/// Returns the number of stars that follow one another in `pattern`, from `p` on.
fn stars_at(pattern: &[u8], p: usize) -> usize {
    pattern[p..]
        .iter()
        .take_while(|byte| **byte == b'*')
        .count()
}

/// Returns whether the element of the pattern at `p` matches `byte`, and where the next one begins.
fn one(pattern: &[u8], p: usize, byte: u8, same: &impl Fn(u8, u8) -> bool) -> (bool, usize) {
    match pattern[p] {
        b'?' => (true, p + 1),
        b'[' => class(pattern, p + 1, byte, same),
        b'\\' if p + 1 < pattern.len() => (same(pattern[p + 1], byte), p + 2),
        literal => (same(literal, byte), p + 1),
    }
}

fn class(pattern: &[u8], mut p: usize, byte: u8, same: &impl Fn(u8, u8) -> bool) -> (bool, usize) {
    let negated = pattern.get(p) == Some(&b'^');
    if negated {
        p += 1;
    }
    let mut found = false;
    // A class without its closing bracket ends with the pattern.
    while p < pattern.len() && pattern[p] != b']' {
        if pattern[p] == b'\\' && p + 1 < pattern.len() {
            found |= same(pattern[p + 1], byte);
            p += 2;
        } else if p + 2 < pattern.len() && pattern[p + 1] == b'-' {
            let (low, high) = (
                pattern[p].min(pattern[p + 2]),
                pattern[p].max(pattern[p + 2]),
            );
            found |= (low..=high).contains(&byte)
                || same(b'a', b'A') && in_range_ignoring_case(low, high, byte);
            p += 3;
        } else {
            found |= same(pattern[p], byte);
            p += 1;
        }
    }
    (found != negated, (p + 1).min(pattern.len()))
}

fn in_range_ignoring_case(low: u8, high: u8, byte: u8) -> bool {
    (low..=high).contains(&byte.to_ascii_lowercase())
        || (low..=high).contains(&byte.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        matches_within(pattern, text, &mut u64::MAX.clone()).is_some_and(|is_match| is_match)
    }

    #[test]
    fn what_is_more_than_usual_is_bounded_together() {
        let (text, pattern) = (
            vec![b'a'; 20_000],
            [b"*", &vec![b'a'; 1_200][..], b"b*"].concat(),
        );
        let comparisons = Comparisons::new();
        // 18,800 places, 1,200 bytes compared at each, two steps for one: 45 million.
        assert!(!comparisons.matches(&pattern, &text));
        assert_eq!(comparisons.end(), Ok(()));
        assert!(!comparisons.matches(&pattern, &text));
        assert!(comparisons.end().is_err());
        // What cannot be told does not match, and neither does what comes later.
        assert!(!comparisons.matches(b"a*", &text) && comparisons.end().is_err());
        let long_class = [&b"*["[..], &vec![b'b'; 1 << 20], b"]"].concat();
        let comparisons = Comparisons::new();
        assert!(
            !comparisons.matches_ignoring_case(&long_class, &text) && comparisons.end().is_err()
        );
        let stars = Comparisons::new();
        let pattern = [&vec![b'*'; 1 << 20][..], b"x"].concat();
        (0..100).for_each(|_| assert!(!stars.matches(&pattern, b"a")));
        assert!(stars.end().is_err());
    }

    #[test]
    fn usual_patterns_are_compared_without_end() {
        let comparisons = Comparisons::new();
        let text = vec![b'a'; 10_000];
        for _ in 0..20_000 {
            assert!(!comparisons.matches(b"*a*b", &text[..100]));
            assert!(comparisons.matches(b"*[a-c]?a*", &text[..50]));
        }
        (0..1_000).for_each(|_| assert!(!comparisons.matches(b"*aaaaab*", &text)));
        assert_eq!(comparisons.end(), Ok(()));
    }

    #[test]
    fn prefixes_end_where_a_pattern_leaves_a_choice() {
        let cases = [
            ("", ""),
            ("*", ""),
            ("abc", "abc"),
            ("abc*d", "abc"),
            ("a?c", "a"),
            ("a[b]", "a"),
            ("a\\*b*", "a*b"),
            ("a\\", "a\\"),
        ];
        for (pattern, prefix) in cases {
            assert_eq!(
                prefix_of(pattern.as_bytes()),
                prefix.as_bytes(),
                "{pattern}"
            );
        }
    }

    #[test]
    fn patterns_match_as_in_redis() {
        let cases = [
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hbllo", true),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("[", "a", false),
            ("[a", "a", true),
            ("", "", true),
            ("", "a", false),
            ("a", "", false),
            ("*a*b*", "xxaxxbxx", true),
            ("[\\]]", "]", true),
            ("\\", "\\", true),
            ("ab", "AB", false),
            ("[^a", "b", true),
        ];
        for (pattern, text, expected) in cases {
            let got = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(got, expected, "{pattern} {text}");
        }
        assert!(Comparisons::new().matches_ignoring_case(b"MAX*[A-C]", b"maxmemoryb"));
    }

    #[test]
    fn a_hostile_pattern_is_answered_at_once() {
        let pattern = b"*a".repeat(5_000);
        let text = vec![b'a'; 4_000];
        assert!(!matches(&pattern, &text));
    }

    #[test]
    fn steps_are_counted_also_those_in_classes() {
        let text = vec![b'a'; 1_000];
        let class = [&b"*["[..], &[b'b'; 998], b"]"].concat();
        for (pattern, steps_min) in [(&b"*aaaaaaaab"[..], 8_000), (&class, 990_000)] {
            let mut steps = 2_000_000;
            assert_eq!(matches_within(pattern, &text, &mut steps), Some(false));
            assert!(2_000_000 - steps > steps_min, "{steps}");
            assert_eq!(matches_within(pattern, &text, &mut 7_000), None);
        }
    }

    /// A naive implementation that the product's is compared with.
    fn simple(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|taken| simple(rest, &text[taken..])),
            ([b'?', rest @ ..], [_, text @ ..]) => simple(rest, text),
            ([literal, rest @ ..], [byte, text @ ..]) => literal == byte && simple(rest, text),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn stars_agree_with_the_naive_matcher(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                simple(pattern.as_bytes(), text.as_bytes())
            );
        }

        #[test]
        fn any_bytes_are_matched_without_panic(
            pattern in prop::collection::vec(prop_oneof![
                Just(b'['), Just(b']'), Just(b'^'), Just(b'-'), Just(b'\\'), Just(b'*'), any::<u8>()
            ], 0..20),
            text in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let _ = matches(&pattern, &text);
        }
    }
}
