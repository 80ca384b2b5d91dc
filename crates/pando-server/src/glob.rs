//! Patterns of KEYS, SCAN, PSUBSCRIBE and CONFIG GET: `*`, `?`, `[a-z]`, `[^a]`, `\x`.
//!
//! The matcher remembers only one place to return to, the last star: so its work is at most the
//! length of the pattern times that of the text, and it needs no stack, whatever the pattern.

/// Returns true if `text` matches `pattern` as a whole.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut steps = u64::MAX;
    matches_within(pattern, text, &mut steps).is_some_and(|is_match| is_match)
}

/// Like [`matches`], and takes at most so many steps, which it counts down; `None` if there are
/// too few.
pub(crate) fn matches_within(pattern: &[u8], text: &[u8], steps: &mut u64) -> Option<bool> {
    matches_with(pattern, text, |a, b| a == b, steps)
}

/// Like [`matches`], but ignores the case of letters.
pub(crate) fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    let same = |a: u8, b: u8| a.eq_ignore_ascii_case(&b);
    let mut steps = u64::MAX;
    matches_with(pattern, text, same, &mut steps).is_some_and(|is_match| is_match)
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
            while p < pattern.len() && pattern[p] == b'*' {
                p += 1;
            }
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
    Some(pattern[p..].iter().all(|byte| *byte == b'*'))
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
        assert!(matches_ignoring_case(b"MAX*[A-C]", b"maxmemoryb"));
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
