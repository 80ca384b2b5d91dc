//! Finds which files of a crate import which.
//!
//! A path is followed through the modules to the file that defines what it names. `lib.rs`,
//! `main.rs` and `mod.rs` are transparent: a name that such a file only re-exports belongs to the
//! file that it comes from, and the re-export is no import. Everything that they define or use
//! themselves counts as theirs, including names that they also re-export.
//!
//! Left out, since the text alone does not tell: methods called on a value, names from a glob that
//! no file under it defines, exported macros, and files under `#[cfg(test)]` or with a `#[path]`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::imports::{Imports, Use, read};
use crate::run::Result;

/// Files, each with the files that it imports.
pub(crate) type Graph = BTreeMap<String, BTreeSet<String>>;

/// More re-exports in a row than anyone writes, so that a cycle of them ends.
const STEPS_MAX: usize = 32;

/// Returns the imports below `folder/src`, as paths below `src`.
pub(crate) fn graph(folder: &Path) -> Result<Graph> {
    let mut graph = Graph::new();
    for root in ["lib.rs", "main.rs"] {
        let source = |file: &str| fs::read_to_string(folder.join("src").join(file)).ok();
        if source(root).is_some() {
            graph.extend(Crate::new(root, &source).graph());
        }
    }
    match graph.is_empty() {
        true => Err(format!("{}: has no sources", folder.display())),
        false => Ok(graph),
    }
}

/// The modules of one crate root.
struct Crate {
    modules: Vec<Module>,
}

struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    imports: Imports,
}

/// The target of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// Something that this module defines.
    Item(usize),
}

impl Crate {
    /// Reads the modules; `source` returns the text of a file, if it exists.
    fn new(root: &str, source: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut all = Self {
            modules: Vec::new(),
        };
        let text = source(root).unwrap_or_default();
        all.add(root.to_owned(), "", None, &text, source);
        all
    }

    /// Adds a module and its submodules, which are in `folder`.
    fn add(
        &mut self,
        file: String,
        folder: &str,
        parent: Option<usize>,
        text: &str,
        source: &dyn Fn(&str) -> Option<String>,
    ) -> usize {
        let this = self.modules.len();
        self.modules.push(Module {
            file,
            parent,
            children: BTreeMap::new(),
            imports: read(text),
        });
        for name in self.modules[this].imports.modules.clone() {
            let below = format!("{folder}{name}/");
            for file in [format!("{folder}{name}.rs"), format!("{below}mod.rs")] {
                if let Some(text) = source(&file) {
                    let child = self.add(file, &below, Some(this), &text, source);
                    self.modules[this].children.insert(name.clone(), child);
                }
            }
        }
        this
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        for (from, module) in self.modules.iter().enumerate() {
            let used = module
                .imports
                .uses
                .iter()
                .filter(|leaf| !(leaf.public && module.passes_on()) || module.uses(leaf));
            let named = used.filter_map(|leaf| match self.follow(from, leaf, 0)? {
                // The uses of its names tell which files are imported.
                Target::Module(to) if self.modules[to].passes_on() => None,
                target => Some(target),
            });
            let gone = &module.imports.paths;
            let gone = gone.iter().filter_map(|path| self.resolve(from, path, 0));
            let files = named
                .chain(gone)
                .map(|(Target::Module(to) | Target::Item(to))| to)
                .filter(|to| *to != from)
                .map(|to| self.modules[to].file.clone());
            graph.insert(module.file.clone(), files.collect());
        }
        graph
    }

    /// Returns where `path`, written in the file of module `from`, leads; `None` if it leaves the
    /// crate, or if the target cannot be determined.
    fn resolve(&self, from: usize, path: &[String], steps: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let module = &self.modules[from];
        let start = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(module.parent?),
            name => match module.children.get(name) {
                Some(child) => Target::Module(*child),
                None => self.passed_on(from, name, steps)?,
            },
        };
        self.descend(start, rest, steps)
    }

    fn descend(&self, start: Target, path: &[String], steps: usize) -> Option<Target> {
        let mut target = start;
        for name in path {
            let Target::Module(at) = target else {
                // A part of the item.
                return Some(target);
            };
            let module = &self.modules[at];
            target = if name == "super" {
                Target::Module(module.parent?)
            } else if let Some(child) = module.children.get(name) {
                Target::Module(*child)
            } else if !module.passes_on() {
                Target::Item(at)
            } else if let Some(passed) = self.passed_on(at, name, steps) {
                passed
            } else if module.imports.items.contains(name) {
                Target::Item(at)
            } else {
                self.out_of_globs(at, name, steps)?
            };
        }
        Some(target)
    }

    /// Returns what module `at` means by a `name` that it imports.
    fn passed_on(&self, at: usize, name: &str, steps: usize) -> Option<Target> {
        let uses = &self.modules[at].imports.uses;
        let leaf = uses
            .iter()
            .find(|leaf| leaf.name.as_deref() == Some(name))?;
        self.follow(at, leaf, steps)
    }

    fn out_of_globs(&self, at: usize, name: &str, steps: usize) -> Option<Target> {
        let globs = self.modules[at].imports.uses.iter();
        let mut found = globs.filter(|leaf| leaf.glob).filter_map(|leaf| {
            match self.follow(at, leaf, steps)? {
                Target::Module(below) if below != at => {
                    let defines = self.modules[below].imports.items.contains(name);
                    defines.then_some(Target::Item(below))
                }
                _ => None,
            }
        });
        found.next()
    }

    fn follow(&self, from: usize, leaf: &Use, steps: usize) -> Option<Target> {
        match steps {
            STEPS_MAX => None,
            _ => self.resolve(from, &leaf.path, steps + 1),
        }
    }
}

impl Module {
    /// Returns true if its own code mentions the name of `leaf`.
    fn uses(&self, leaf: &Use) -> bool {
        let name = leaf.name.as_ref();
        name.is_some_and(|name| self.imports.words.contains(name))
    }

    /// Returns true for the files that re-export names.
    fn passes_on(&self) -> bool {
        let name = self.file.rsplit('/').next();
        matches!(name, Some("lib.rs" | "main.rs" | "mod.rs"))
    }
}

#[cfg(test)]
mod tests {
    use super::Crate;

    /// Checks the imports of a crate with these files. `expected` has them as `from -> to`.
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let source = |file: &str| {
            let mut found = files.iter().filter(|(name, _)| *name == file);
            found.next().map(|(_, text)| (*text).to_owned())
        };
        let graph = Crate::new("lib.rs", &source).graph();
        let arrows = graph.iter().flat_map(|(from, to)| {
            let to = to.iter();
            to.map(move |to| format!("{from} -> {to}"))
        });
        assert_eq!(arrows.collect::<Vec<_>>(), expected, "{files:?}");
    }

    #[test]
    fn a_path_leads_to_the_file_that_defines_what_it_names() {
        let lib = ("lib.rs", "mod a; mod b;");
        check(
            &[lib, ("a.rs", "use crate::b::B;"), ("b.rs", "")],
            &["a.rs -> b.rs"],
        );
        check(
            &[lib, ("a.rs", "use super::b;"), ("b.rs", "")],
            &["a.rs -> b.rs"],
        );
        check(
            &[lib, ("a.rs", "fn f() { crate::b::f() }"), ("b.rs", "")],
            &["a.rs -> b.rs"],
        );
        check(&[lib, ("a.rs", "use std::b::B;"), ("b.rs", "")], &[]);
        check(
            &[lib, ("a.rs", "use self::c::d; enum E {}"), ("b.rs", "")],
            &[],
        );
    }

    #[test]
    fn files_that_pass_names_on_count_as_those_they_come_from() {
        let a = (
            "a.rs",
            "use crate::{B, c::D}; use crate::c; fn f() { c::d::g() }",
        );
        let inner = [("c/mod.rs", "mod d; pub use d::D;"), ("c/d.rs", "")];
        let lib = ("lib.rs", "mod a; mod b; mod c; pub use b::B;");
        let found = ["a.rs -> b.rs", "a.rs -> c/d.rs"];
        check(&[lib, a, ("b.rs", ""), inner[0], inner[1]], &found);
        // This is a glob, and a name that is re-exported twice.
        let lib = ("lib.rs", "mod a; mod b; mod c; pub use b::*; pub use c::D;");
        check(
            &[
                lib,
                ("a.rs", "use crate::{B, D};"),
                ("b.rs", "struct B;"),
                inner[0],
                inner[1],
            ],
            &found,
        );
        // A name that a file re-exports from itself belongs to no file.
        check(
            &[
                ("lib.rs", "mod a; pub use crate::A;"),
                ("a.rs", "use crate::A;"),
            ],
            &[],
        );
    }

    /// What `lib.rs` itself defines or uses is an edge of `lib.rs`, not of the file it passes names
    /// on from.
    #[test]
    fn what_such_a_file_defines_or_uses_is_its_own() {
        let lib = ("lib.rs", "mod a; use a::A; pub struct L; fn f() { a::g() }");
        check(
            &[lib, ("a.rs", "use crate::L;")],
            &["a.rs -> lib.rs", "lib.rs -> a.rs"],
        );
        let lib = ("lib.rs", "mod a; pub type L = a::A;");
        check(&[lib, ("a.rs", "")], &["lib.rs -> a.rs"]);
        let lib = ("lib.rs", "mod a; pub use a::A; fn f(a: A) {}");
        check(&[lib, ("a.rs", "")], &["lib.rs -> a.rs"]);
        // In any other file a `pub use` is an import, and from there on the name belongs to that
        // file.
        let lib = ("lib.rs", "mod a; mod b; mod c;");
        let b = ("b.rs", "pub(crate) use crate::c::C;");
        check(
            &[lib, ("a.rs", "use crate::b::C;"), b, ("c.rs", "")],
            &["a.rs -> b.rs", "b.rs -> c.rs"],
        );
    }

    #[test]
    fn modules_below_and_above_are_found() {
        let lib = ("lib.rs", "mod a;");
        let files = [
            ("a/mod.rs", "mod b; mod c;"),
            ("a/b.rs", "use super::c::C;"),
            ("a/c.rs", ""),
        ];
        check(&[lib, files[0], files[1], files[2]], &["a/b.rs -> a/c.rs"]);
        let b = ("a/b.rs", "mod x { use super::super::c::C; }");
        check(&[lib, files[0], b, files[2]], &["a/b.rs -> a/c.rs"]);
    }
}
