//! The page: style and script are inlined, so that it is one reply and then requests only figures.

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// What a browser may do for the page: use what is inlined, and send requests to this server.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src \
    'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// Returns the whole page.
pub(crate) fn page() -> String {
    PAGE.replacen("/*STYLE*/", STYLE, 1)
        .replacen("/*SCRIPT*/", SCRIPT, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_asks_for_nothing_from_elsewhere() {
        let page = page();
        assert!(page.contains(STYLE) && page.contains(SCRIPT));
        assert!(!page.contains("/*STYLE*/") && !page.contains("/*SCRIPT*/"));
        let links: Vec<_> = page
            .match_indices("://")
            .map(|(at, _)| &page[..at])
            .collect();
        let name_space = SCRIPT.find("://www.w3.org/2000/svg");
        assert!(name_space.is_some() && links.len() == 1, "no other address");
        assert!(!SCRIPT.contains("innerHTML") && !SCRIPT.contains("eval("));
        assert_eq!(page.matches("</script>").count(), 1);
    }
}
