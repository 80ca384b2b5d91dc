//! Checks which crates use which, and which folders of a crate, against ARCHITECTURE.md.
//!
//! The edges of crates are in a block that begins with three backticks and `edges`, those of a
//! crate's folders in one that begins with `edges CRATE`. A file next to the folders counts as a
//! folder, under its name without `.rs`; `lib.rs` and `main.rs` have an edge only if they use or
//! define something themselves. A crate without a block is not checked. In each block a line uses
//! only names that are above it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::modules::Graph;
use crate::run::{Result, cargo, output};

const DOCUMENT: &str = "ARCHITECTURE.md";

type Edges = BTreeMap<String, BTreeSet<String>>;
/// The edges in the order of the document.
type Block = Vec<(String, BTreeSet<String>)>;

/// Returns the text of the document.
pub(crate) fn document(root: &Path) -> Result<String> {
    let path = root.join(DOCUMENT);
    fs::read_to_string(path).map_err(|error| format!("{DOCUMENT}: {error}"))
}

/// Returns the differences between the manifests and the document. Tests may use any crate.
pub(crate) fn check(root: &Path, document: &str) -> Result<Vec<String>> {
    let allowed = documented(document, "edges")?;
    let allowed = allowed.ok_or_else(|| format!("{DOCUMENT}: has no block of edges"))?;
    let how = [
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--offline",
    ];
    let metadata = output(cargo(root, None).args(how))?;
    let metadata = serde_json::from_str(&metadata).map_err(|error| format!("metadata: {error}"))?;
    Ok(compare("", &allowed, &actual(&metadata)))
}

/// Returns the differences between the folders of `package` and its block, if it has one.
pub(crate) fn check_folders(package: &str, graph: &Graph, document: &str) -> Result<Vec<String>> {
    let allowed = documented(document, &format!("edges {package}"))?;
    Ok(allowed.map_or_else(Vec::new, |allowed| {
        compare(&format!("{package}/"), &allowed, &folders(graph))
    }))
}

/// Returns the lines `from -> to, to` of the block of this `kind`; `None` if there is no such
/// block.
fn documented(text: &str, kind: &str) -> Result<Option<Block>> {
    let start = |line: &&str| line.strip_prefix("```") != Some(kind);
    let mut lines = text.lines().skip_while(start);
    if lines.next().is_none() {
        return Ok(None);
    }
    let mut edges = Block::new();
    for line in lines.take_while(|line| *line != "```") {
        let (from, to) = line
            .split_once("->")
            .ok_or_else(|| format!("{DOCUMENT}: '{line}' is not 'from -> to, to'"))?;
        let names = to.split(',').map(str::trim).filter(|name| !name.is_empty());
        edges.push((from.trim().to_owned(), names.map(str::to_owned).collect()));
    }
    Ok(Some(edges))
}

/// Returns the edges to names that are not above: as long as there are none, there are no cycles.
fn upwards(place: &str, allowed: &Block) -> Vec<String> {
    let mut problems = Vec::new();
    let mut above = BTreeSet::new();
    for (from, edges) in allowed {
        for to in edges.difference(&above) {
            problems.push(format!(
                "{DOCUMENT}: {place}{from} uses {to}, which does not stand above it"
            ));
        }
        if !above.insert(from.clone()) {
            problems.push(format!("{DOCUMENT}: {place}{from} stands there twice"));
        }
    }
    problems
}

/// Converts `graph` to edges between folders.
fn folders(graph: &Graph) -> Edges {
    let folder = |file: &str| {
        let (folder, _) = file.split_once('/').unwrap_or((file, ""));
        folder.trim_end_matches(".rs").to_owned()
    };
    let mut edges = Edges::new();
    for (from, files) in graph {
        let from = folder(from);
        let is_root = matches!(from.as_str(), "lib" | "main");
        let to: BTreeSet<_> = files.iter().map(|file| folder(file)).collect();
        if !(is_root && to.is_empty()) {
            edges.entry(from).or_default().extend(to);
        }
    }
    for (from, to) in &mut edges {
        to.remove(from);
    }
    edges
}

fn actual(metadata: &Value) -> Edges {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let mut edges = Edges::new();
    for package in list(&metadata["packages"]) {
        let ours = list(&package["dependencies"])
            .into_iter()
            .filter(|dependency| dependency["path"].is_string())
            .filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| name(&dependency));
        edges.insert(name(&package), ours.collect());
    }
    edges
}

/// Compares the documented edges with the actual ones. `place` is the path prefix of the names.
fn compare(place: &str, allowed: &Block, actual: &Edges) -> Vec<String> {
    let mut problems = upwards(place, allowed);
    let allowed: Edges = allowed.iter().cloned().collect();
    let none = BTreeSet::new();
    for (from, edges) in actual {
        let documented = allowed.get(from).unwrap_or(&none);
        if !allowed.contains_key(from) {
            problems.push(format!("{DOCUMENT}: {place}{from} is not in the edges"));
        }
        for to in edges.difference(documented) {
            problems.push(format!(
                "{place}{from} uses {to}, which {DOCUMENT} does not allow"
            ));
        }
        for to in documented.difference(edges) {
            problems.push(format!(
                "{DOCUMENT}: {place}{from} -> {to} is allowed but not used"
            ));
        }
    }
    for from in allowed.keys().filter(|from| !actual.contains_key(*from)) {
        problems.push(format!("{DOCUMENT}: there is no {place}{from}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::modules::Graph;
    use super::{actual, check_folders, compare, documented};

    const DOCUMENT: &str = "# X\n```edges\na ->\nb -> a\n```\nc -> d\n\
        ```edges a\nerror ->\nx -> error\n```\n";

    fn check(metadata: &str, expected: &[&str]) {
        let metadata = serde_json::from_str(metadata).unwrap();
        let allowed = documented(DOCUMENT, "edges").unwrap().unwrap();
        expect(&compare("", &allowed, &actual(&metadata)), expected);
    }

    fn expect(problems: &[String], expected: &[&str]) {
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, part) in problems.iter().zip(expected) {
            assert!(problem.contains(part), "{problem}");
        }
    }

    #[test]
    fn edges_that_differ_from_the_document_are_found() {
        let package =
            |name: &str, uses: &str| format!(r#"{{"name":"{name}","dependencies":[{uses}]}}"#);
        let edge = |name: &str| format!(r#"{{"name":"{name}","path":"/x","kind":null}}"#);
        let all = |packages: &[String]| format!(r#"{{"packages":[{}]}}"#, packages.join(","));
        let a = package("a", "");
        check(&all(&[a.clone(), package("b", &edge("a"))]), &[]);
        check(
            &all(&[a.clone(), package("b", "")]),
            &["allowed but not used"],
        );
        check(
            &all(&[package("a", &edge("b")), package("b", &edge("a"))]),
            &["a uses b"],
        );
        check(&all(&[a]), &["no b"]);
    }

    #[test]
    fn edges_of_folders_that_differ_from_the_document_are_found() {
        let check = |arrows: &[(&str, &[&str])], expected: &[&str]| {
            let files = |to: &[&str]| to.iter().copied().map(str::to_owned).collect();
            let mut graph: Graph = [("error.rs", &[][..]), ("lib.rs", &[])]
                .into_iter()
                .chain(arrows.iter().copied())
                .map(|(from, to)| (from.to_owned(), files(to)))
                .collect();
            graph.entry("x/b.rs".to_owned()).or_default();
            expect(&check_folders("a", &graph, DOCUMENT).unwrap(), expected);
            // The other crate has no block.
            expect(&check_folders("b", &graph, DOCUMENT).unwrap(), &[]);
        };
        let fine = ("x/a.rs", &["error.rs", "x/b.rs"][..]);
        check(&[fine], &[]);
        check(&[], &["a/x -> error is allowed but not used"]);
        check(&[fine, ("error.rs", &["x/a.rs"])], &["a/error uses x"]);
        check(&[fine, ("y.rs", &[])], &["a/y is not in"]);
        check(
            &[fine, ("lib.rs", &["error.rs"])],
            &["a/lib is not in", "a/lib uses error"],
        );
    }

    #[test]
    fn edges_that_do_not_point_down_are_found() {
        let check = |lines: &str, expected: &[&str]| {
            let document = format!("```edges\n{lines}```\n");
            let allowed = documented(&document, "edges").unwrap().unwrap();
            let actual = allowed.iter().cloned().collect();
            expect(&compare("", &allowed, &actual), expected);
        };
        check("a ->\nb -> a\nc -> a, b\n", &[]);
        check("b -> a\na ->\n", &["b uses a"]);
        check("a -> b\nb -> a\n", &["a uses b"]);
        check("a -> a\n", &["a uses a"]);
        check("a ->\na ->\n", &["a stands there twice"]);
    }

    #[test]
    fn a_document_without_the_edges_of_crates_is_refused() {
        assert!(documented("# X\n", "edges").unwrap().is_none());
        assert!(documented("```edges\na b\n```\n", "edges").is_err());
    }
}
