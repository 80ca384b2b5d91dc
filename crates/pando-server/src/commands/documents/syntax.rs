//! What follows the name of a command, as `syntax.txt` has it.

/// An argument of a command, or a group of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Argument {
    pub(super) name: String,
    pub(super) form: Form,
    /// The word in front of it, or that it is.
    pub(super) token: Option<&'static str>,
    /// Index of the key specification that is about it.
    pub(super) key: Option<u8>,
    pub(super) since: Option<&'static str>,
    pub(super) deprecated_since: Option<&'static str>,
    pub(super) is_optional: bool,
    pub(super) repeats: Repeats,
}

/// What an argument is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A value of this type.
    Value(&'static str),
    /// The token itself.
    Token,
    OneOf(Vec<Argument>),
    Block(Vec<Argument>),
}

/// How often an argument may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeats {
    Never,
    Often,
    /// With its token each time.
    WithToken,
}

/// Types of values that are not strings.
const TYPES: [&str; 5] = ["key", "integer", "double", "pattern", "unix-time"];

/// The lines of `syntax.txt`.
pub(super) struct Table(Vec<(&'static str, &'static str)>);

impl Table {
    pub(super) fn read() -> Self {
        let lines = include_str!("syntax.txt").lines();
        let lines = lines.filter(|line| !line.starts_with('#'));
        Self(lines.filter_map(|line| line.split_once(' ')).collect())
    }

    /// Returns what the command or subcommand with this full name takes; nothing if it has no line.
    pub(super) fn arguments(&self, name: &str) -> Vec<Argument> {
        match self.0.binary_search_by_key(&name, |(name, _)| name) {
            Ok(at) => parse(self.0[at].1).unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
impl Table {
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }
}

/// Returns what a line has behind its name; None if that is not what its head says.
fn parse(text: &'static str) -> Option<Vec<Argument>> {
    let mut rest = Rest(text);
    let arguments = rest.list(" ")?;
    rest.0.is_empty().then_some(arguments)
}

/// What of a line has not been read.
struct Rest(&'static str);

impl Rest {
    /// Takes `text`, if it comes next.
    fn skips(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Takes what comes next, up to the first character that `ends` it.
    fn word(&mut self, ends: impl Fn(char) -> bool) -> Option<&'static str> {
        let (word, rest) = self.0.split_at(self.0.find(ends).unwrap_or(self.0.len()));
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }

    /// Takes arguments with `separator` in between.
    fn list(&mut self, separator: &str) -> Option<Vec<Argument>> {
        let mut arguments = vec![self.argument()?];
        while self.skips(separator) {
            arguments.push(self.argument()?);
        }
        Some(arguments)
    }

    fn argument(&mut self) -> Option<Argument> {
        if !self.skips("[") {
            return self.needed();
        }
        let argument = self.needed()?;
        self.skips("]").then_some(Argument {
            is_optional: true,
            ..argument
        })
    }

    fn needed(&mut self) -> Option<Argument> {
        let (name, form, token) = self.named()?;
        let is_key = form == Form::Value("key");
        let key = match self.skips("#") {
            true => Some(self.word(|c| !c.is_ascii_digit())?.parse().ok()?),
            false => is_key.then_some(0),
        };
        let since = self.version("@");
        let deprecated_since = self.version("~");
        let repeats = match (self.skips("+..."), self.skips("...")) {
            (true, _) => Repeats::WithToken,
            (false, true) => Repeats::Often,
            (false, false) => Repeats::Never,
        };
        Some(Argument {
            name,
            form,
            token,
            key,
            since,
            deprecated_since,
            is_optional: false,
            repeats,
        })
    }

    /// Takes the name of an argument, what it is, and its token.
    fn named(&mut self) -> Option<(String, Form, Option<&'static str>)> {
        let ends = |c| " []{}()|@#~+.=".contains(c);
        let word = self.word(ends)?;
        if self.skips("=") {
            let token = self.word(|c| " ]})@".contains(c))?;
            return Some((word.to_owned(), Form::Token, Some(token)));
        }
        if word.contains(|c: char| c.is_lowercase()) {
            let (name, form) = self.form(word)?;
            return Some((name.to_owned(), form, None));
        }
        let behind = self.0.strip_prefix(' ');
        if behind.is_some_and(|behind| behind.starts_with(|c: char| c.is_lowercase())) {
            self.skips(" ");
            let token = word;
            let word = self.word(ends)?;
            let (name, form) = self.form(word)?;
            return Some((name.to_owned(), form, Some(token)));
        }
        Some((word.to_lowercase(), Form::Token, Some(word)))
    }

    fn form(&mut self, word: &'static str) -> Option<(&'static str, Form)> {
        if self.skips("{") {
            let parts = self.list(" | ")?;
            return self.skips("}").then_some((word, Form::OneOf(parts)));
        }
        if self.skips("(") {
            let parts = self.list(" ")?;
            return self.skips(")").then_some((word, Form::Block(parts)));
        }
        // The name of an argument may have a colon: `ip:port`.
        let typed = word.rsplit_once(':');
        let typed = typed.filter(|(_, of)| TYPES.contains(of));
        Some(match typed {
            Some((name, of)) => (name, Form::Value(of)),
            None if word == "key" => (word, Form::Value("key")),
            None => (word, Form::Value("string")),
        })
    }

    /// Takes a version, three numbers, if it comes next behind `sign`.
    fn version(&mut self, sign: &str) -> Option<&'static str> {
        if !self.skips(sign) {
            return None;
        }
        let text = self.0;
        for number in 0..3 {
            let _ = number > 0 && self.skips(".");
            self.word(|c| !c.is_ascii_digit());
        }
        Some(&text[..text.len() - self.0.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::{Argument, Form, Repeats, Table, parse};

    fn plain(name: &str, form: Form) -> Argument {
        Argument {
            name: name.to_owned(),
            form,
            token: None,
            key: None,
            since: None,
            deprecated_since: None,
            is_optional: false,
            repeats: Repeats::Never,
        }
    }

    #[test]
    fn lines_are_read_as_their_head_says() {
        let text = "key to:key#1 ip:port [EX at:unix-time@6.2.0+...] [how{NX | is==@1.0.0~2.8.12}] \
                    LIMIT pair(a b:integer)...";
        let string = |name| plain(name, Form::Value("string"));
        let expected = [
            Argument {
                key: Some(0),
                ..plain("key", Form::Value("key"))
            },
            Argument {
                key: Some(1),
                ..plain("to", Form::Value("key"))
            },
            string("ip:port"),
            Argument {
                token: Some("EX"),
                since: Some("6.2.0"),
                is_optional: true,
                repeats: Repeats::WithToken,
                ..plain("at", Form::Value("unix-time"))
            },
            Argument {
                is_optional: true,
                ..plain(
                    "how",
                    Form::OneOf(vec![
                        Argument {
                            token: Some("NX"),
                            ..plain("nx", Form::Token)
                        },
                        Argument {
                            token: Some("="),
                            since: Some("1.0.0"),
                            deprecated_since: Some("2.8.12"),
                            ..plain("is", Form::Token)
                        },
                    ]),
                )
            },
            Argument {
                token: Some("LIMIT"),
                repeats: Repeats::Often,
                ..plain(
                    "pair",
                    Form::Block(vec![string("a"), plain("b", Form::Value("integer"))]),
                )
            },
        ];
        assert_eq!(parse(text).as_deref(), Some(&expected[..]));
        for text in [
            "",
            "a ",
            "a]",
            "[a",
            "{a}",
            "a{b",
            "a(b | c)",
            "a b@1.0.0.0",
            "a...b",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_table_is_ordered_and_can_be_read() {
        let Table(lines) = Table::read();
        assert!(lines.len() > 250);
        assert!(lines.is_sorted_by(|(before, _), (behind, _)| before < behind));
        for (name, text) in lines {
            assert!(parse(text).is_some(), "{name} {text}");
        }
    }
}
