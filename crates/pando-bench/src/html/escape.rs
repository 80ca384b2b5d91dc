//! Escapes any text, for content and attributes.

/// Returns `text` without characters that a browser or an XML parser would interpret.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML allows these in no form.
            '\u{0}'..='\u{8}'
            | '\u{b}'
            | '\u{c}'
            | '\u{e}'..='\u{1f}'
            | '\u{fffe}'..='\u{ffff}' => {
                out.push('\u{fffd}');
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escape;

    /// Escaped text cannot end the element or the attribute that contains it.
    #[test]
    fn nothing_ends_an_element_or_an_attribute() {
        let text = "<b a='1' c=\"2\">&\u{0}\u{1b}</b>";
        let escaped = escape(text);
        let expected = "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;\u{fffd}\u{fffd}&lt;/b&gt;";
        assert_eq!(escaped, expected);
        assert_eq!(escape("a\tb\n\u{fc}"), "a\tb\n\u{fc}");
    }
}
