//! Which of our crates use which, compared with the list in ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::run::{Result, cargo, output};

const DOCUMENT: &str = "ARCHITECTURE.md";

type Edges = BTreeMap<String, BTreeSet<String>>;

/// Differences between the manifests and the document. Tests may use what they like.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let path = root.join(DOCUMENT);
    let text = fs::read_to_string(path).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let allowed = documented(&text)?;
    let how = [
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--offline",
    ];
    let metadata = output(cargo(root, None).args(how))?;
    let metadata = serde_json::from_str(&metadata).map_err(|error| format!("metadata: {error}"))?;
    Ok(compare(&allowed, &actual(&metadata)))
}

/// The lines `crate -> crate, crate` of the block that begins with three backticks and `edges`.
fn documented(text: &str) -> Result<Edges> {
    let mut lines = text.lines().skip_while(|line| *line != "```edges").skip(1);
    let mut edges = Edges::new();
    for line in lines.by_ref().take_while(|line| *line != "```") {
        let (from, to) = line
            .split_once("->")
            .ok_or_else(|| format!("{DOCUMENT}: '{line}' is not 'crate -> crate, crate'"))?;
        let names = to.split(',').map(str::trim).filter(|name| !name.is_empty());
        edges.insert(from.trim().to_owned(), names.map(str::to_owned).collect());
    }
    match edges.is_empty() {
        true => Err(format!("{DOCUMENT}: has no block of edges")),
        false => Ok(edges),
    }
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

fn compare(allowed: &Edges, actual: &Edges) -> Vec<String> {
    let mut problems = Vec::new();
    let none = BTreeSet::new();
    for (from, edges) in actual {
        let documented = allowed.get(from).unwrap_or(&none);
        if !allowed.contains_key(from) {
            problems.push(format!("{DOCUMENT}: crate {from} is not in the edges"));
        }
        for to in edges.difference(documented) {
            problems.push(format!("{from} uses {to}, which {DOCUMENT} does not allow"));
        }
        for to in documented.difference(edges) {
            problems.push(format!(
                "{DOCUMENT}: {from} -> {to} is allowed but not used"
            ));
        }
    }
    for from in allowed.keys().filter(|from| !actual.contains_key(*from)) {
        problems.push(format!("{DOCUMENT}: there is no crate {from}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::{actual, compare, documented};

    const DOCUMENT: &str = "# X\n```edges\na ->\nb -> a\n```\nc -> d\n";

    fn check(metadata: &str, expected: &[&str]) {
        let metadata = serde_json::from_str(metadata).unwrap();
        let problems = compare(&documented(DOCUMENT).unwrap(), &actual(&metadata));
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
        check(&all(&[a]), &["no crate b"]);
    }
}
