//! What a source file says about other files of its crate: the modules that it declares, its
//! imports, and the paths in its code.
//!
//! Reads tokens and not a syntax tree, so that the arguments of macros count, too. Items under
//! `#[cfg(test)]`, or `all(test, ..)`, are left out.

use std::collections::BTreeSet;

use super::text::split;

/// Keywords that are followed by an item's name.
const KINDS: [&str; 8] = [
    "struct", "enum", "union", "trait", "type", "fn", "const", "static",
];

/// The contents of one file.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    /// Modules that have files of their own.
    pub(crate) modules: Vec<String>,
    /// Names of items, methods included.
    pub(crate) items: BTreeSet<String>,
    /// All `use` items, one for each leaf.
    pub(crate) uses: Vec<Use>,
    /// Words of the code outside of `use` and `mod`.
    pub(crate) words: BTreeSet<String>,
    /// Paths in code, of at least two words.
    pub(crate) paths: Vec<Vec<String>>,
}

/// One leaf of a `use`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    /// Without the star of a glob.
    pub(crate) path: Vec<String>,
    /// The name in this file. `None` for a glob, or for a name in a module inside the file.
    pub(crate) name: Option<String>,
    /// It ends in a star.
    pub(crate) glob: bool,
    /// It has a `pub` of any kind.
    pub(crate) public: bool,
}

/// Parses `source`.
pub(crate) fn read(source: &str) -> Imports {
    let code = split(source).code.join("\n");
    let mut reader = Reader {
        tokens: tokens(&code),
        at: 0,
        braces: 0,
        inline: Vec::new(),
        found: Imports::default(),
    };
    while reader.at < reader.tokens.len() {
        reader.step();
    }
    reader.found
}

/// Splits code into words, `::`, and single characters for everything else.
fn tokens(code: &str) -> Vec<&str> {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if in_word(first) {
            rest.find(|c| !in_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

struct Reader<'a> {
    tokens: Vec<&'a str>,
    at: usize,
    braces: usize,
    /// Number of open braces around each enclosing module that has no file.
    inline: Vec<usize>,
    found: Imports,
}

impl<'a> Reader<'a> {
    fn token(&self, at: usize) -> &'a str {
        self.tokens.get(at).copied().unwrap_or_default()
    }

    fn before(&self) -> &'a str {
        self.at
            .checked_sub(1)
            .map_or("", |before| self.token(before))
    }

    fn step(&mut self) {
        let next = self.token(self.at + 1);
        match self.token(self.at) {
            "#" if next == "[" => self.attribute(),
            "mod" if is_word(next) && self.token(self.at + 2) == "{" => {
                self.inline.push(self.braces);
                self.at += 2;
            }
            "mod" if is_word(next) => {
                self.found.modules.push(next.to_owned());
                self.at += 2;
            }
            "use" if is_word(next) || next == "{" => {
                let public = matches!(self.before(), "pub" | ")");
                self.at += 1;
                self.tree(&mut Vec::new(), public);
            }
            kind if KINDS.contains(&kind) && is_word(next) => {
                self.found.items.insert(next.to_owned());
                self.at += 1;
            }
            word if is_word(word) && next == "::" && !matches!(self.before(), "::" | ".") => {
                self.path();
            }
            "{" => {
                self.braces += 1;
                self.at += 1;
            }
            "}" => {
                self.braces = self.braces.saturating_sub(1);
                self.inline.pop_if(|around| *around == self.braces);
                self.at += 1;
            }
            token => {
                if is_word(token) {
                    self.found.words.insert(token.to_owned());
                }
                self.at += 1;
            }
        }
    }

    /// Skips an attribute, and its item if that is for tests only.
    fn attribute(&mut self) {
        self.at += 1;
        let start = self.at;
        self.group();
        let words = &self.tokens[start..self.at];
        let for_tests = words.starts_with(&["[", "cfg", "(", "test", ")"])
            || words.starts_with(&["[", "cfg", "(", "all", "(", "test", ","]);
        if !for_tests {
            return;
        }
        loop {
            match self.token(self.at) {
                "{" => return self.group(),
                "(" | "[" => self.group(),
                ";" | "" | "}" | ")" | "]" => return,
                _ => self.at += 1,
            }
        }
    }

    /// Skips everything from the next bracket to its closing one.
    fn group(&mut self) {
        let mut depth = 0;
        loop {
            match self.token(self.at) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                "" => return,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// Reads a tree of a `use`, whose prefix is `path`.
    fn tree(&mut self, path: &mut Vec<String>, public: bool) {
        let above = path.len();
        loop {
            let token = self.token(self.at);
            self.at += 1;
            match token {
                "::" => {}
                "{" => {
                    while !matches!(self.token(self.at), "}" | "") {
                        self.tree(path, public);
                        if self.token(self.at) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    break;
                }
                "*" => {
                    self.leaf(path.clone(), None, true, public);
                    break;
                }
                word if is_word(word) => {
                    // `a::{self}` is `a`.
                    if word != "self" || path.is_empty() {
                        path.push(word.to_owned());
                    }
                    if self.token(self.at) != "::" {
                        let mut name = path.last().cloned();
                        if self.token(self.at) == "as" {
                            name = Some(self.token(self.at + 1).to_owned());
                            self.at += 2;
                        }
                        self.leaf(path.clone(), name, false, public);
                        break;
                    }
                }
                // Not valid Rust.
                _ => break,
            }
        }
        path.truncate(above);
    }

    fn leaf(&mut self, path: Vec<String>, name: Option<String>, glob: bool, public: bool) {
        let within = self.inline.is_empty();
        self.found.uses.push(Use {
            path: self.outside(path),
            name: name.filter(|_| within),
            glob,
            public,
        });
    }

    fn path(&mut self) {
        let limits_a_pub = self.before() == "in";
        let mut path = vec![self.token(self.at).to_owned()];
        self.found.words.insert(path[0].clone());
        self.at += 1;
        while self.token(self.at) == "::" && is_word(self.token(self.at + 1)) {
            path.push(self.token(self.at + 1).to_owned());
            self.at += 2;
        }
        if path.len() > 1 && !limits_a_pub {
            let path = self.outside(path);
            self.found.paths.push(path);
        }
    }

    /// Returns a path as the file's own module would write it: in a module without a file, `super`
    /// is the file.
    fn outside(&self, path: Vec<String>) -> Vec<String> {
        let ours = path.iter().take(self.inline.len());
        match ours.take_while(|word| *word == "super").count() {
            0 => path,
            ours => [&["self".to_owned()], &path[ours..]].concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Use, read};

    fn paths(source: &str) -> Vec<String> {
        let found = read(source);
        let uses = found.uses.iter().map(|leaf| &leaf.path);
        uses.chain(&found.paths)
            .map(|path| path.join("::"))
            .collect()
    }

    #[test]
    fn paths_of_imports_and_of_code_are_found() {
        let check = |source, expected: &[&str]| assert_eq!(paths(source), expected, "{source}");
        check("use crate::a;", &["crate::a"]);
        check(
            "use crate::{a::{self, B}, c::D as E};",
            &["crate::a", "crate::a::B", "crate::c::D"],
        );
        check("fn f() { super::a::g::<u8>() }", &["super::a::g"]);
        check(
            "assert!(crate::a::B::is(x), \"crate::c\");",
            &["crate::a::B::is"],
        );
        check("// crate::a::b\n", &[]);
        check("pub(in crate::a) fn f() {}", &[]);
        check("pub(crate) fn f() {}", &[]);
        check("x.iter().sum::<u8>();", &[]);
    }

    #[test]
    fn names_modules_and_items_are_found() {
        let found = read("mod a; pub(crate) use a::B as C; pub use b::*; struct D; fn e() {}");
        assert_eq!(found.modules, ["a"]);
        let leaf = |path: [&str; 2], name: Option<&str>| Use {
            path: path.map(str::to_owned).to_vec(),
            name: name.map(str::to_owned),
            glob: false,
            public: true,
        };
        assert_eq!(found.uses[0], leaf(["a", "B"], Some("C")));
        assert_eq!(
            (&*found.uses[1].path, found.uses[1].glob),
            (&["b".to_owned()][..], true)
        );
        assert!(found.items.contains("D") && found.items.contains("e"));
    }

    #[test]
    fn what_is_for_tests_only_is_left_out() {
        let tests = "#[cfg(test)]\nmod tests { use crate::a; fn f() { crate::b::c() } }";
        assert!(paths(tests).is_empty());
        assert!(read("#[cfg(test)] mod tests; mod a;").modules == ["a"]);
        let between = "#[cfg(all(test, x))] #[path = \"p\"] mod tests;\nuse crate::a;";
        assert_eq!(paths(between), ["crate::a"]);
        assert!(paths("#[cfg(all(test, not(x)))] use crate::a;").is_empty());
        for always in ["not(test)", "any(test, x)", "not(all(test, x))", "testing"] {
            let source = format!("#[cfg({always})] use crate::a;");
            assert_eq!(paths(&source), ["crate::a"], "{always}");
        }
    }

    #[test]
    fn a_module_without_a_file_is_part_of_the_file_around_it() {
        let source = "mod x { use super::A; use super::super::b::C; } use super::d::E;";
        assert_eq!(
            paths(source),
            ["self::A", "self::super::b::C", "super::d::E"]
        );
        let inner = read("mod x { use super::A; }");
        assert_eq!(inner.uses[0].name, None);
    }
}
