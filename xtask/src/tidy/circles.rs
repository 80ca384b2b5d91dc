//! Import cycles between files: none are allowed but those that are listed with a reason.

use std::collections::BTreeSet;

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use super::modules::Graph;

/// Files that may form cycles with each other.
pub(crate) struct Listed {
    /// Name of the crate.
    pub(crate) package: &'static str,
    /// Why these files need each other; completes a sentence about them.
    pub(crate) reason: &'static str,
    /// From the crate's `src` on.
    pub(crate) files: &'static [&'static str],
}

/// The allowed cycles, and why. Whoever breaks one up removes its files here.
pub(crate) const LISTED: [Listed; 1] = [Listed {
    package: "pando-server",
    reason: "is one idea: a command is a function over its context, where EXEC and COMMAND find others",
    files: &[
        "context/index.rs",
        "context/mod.rs",
        "context/specification.rs",
    ],
}];

/// Returns the cycles of `package` that no entry of `listed` covers, and the entries that cover
/// none.
pub(crate) fn check(package: &str, graph: &Graph, listed: &[Listed]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut tied = BTreeSet::new();
    let listed = || listed.iter().filter(|entry| entry.package == package);
    for circle in circles(graph) {
        let covers = |entry: &Listed| circle.iter().all(|file| entry.files.contains(file));
        if !listed().any(covers) {
            let arrows = arrows(graph, &circle);
            problems.push(format!(
                "{package}: files import each other in a circle: {arrows}"
            ));
        }
        tied.extend(circle);
    }
    for entry in listed() {
        for file in entry.files.iter().filter(|file| !tied.contains(*file)) {
            let reason = entry.reason;
            problems.push(format!(
                "{package}: {file} is in no circle any more; it is listed for one that {reason}"
            ));
        }
    }
    problems
}

/// Describes what each file of `circle` imports from the others.
fn arrows(graph: &Graph, circle: &[&str]) -> String {
    let lines = circle.iter().map(|from| {
        let to = graph.get(*from).into_iter().flatten();
        let to: Vec<_> = to
            .map(String::as_str)
            .filter(|to| circle.contains(to))
            .collect();
        format!("{from} -> {}", to.join(", "))
    });
    lines.collect::<Vec<_>>().join("; ")
}

/// Returns the sets of more than one file in which each file reaches all others, in order.
fn circles(graph: &Graph) -> Vec<Vec<&str>> {
    let arrows = graph
        .iter()
        .flat_map(|(from, to)| to.iter().map(move |to| (from.as_str(), to.as_str())));
    let mut circles = tarjan_scc(&DiGraphMap::<&str, ()>::from_edges(arrows));
    circles.retain(|circle| circle.len() > 1);
    for circle in &mut circles {
        circle.sort_unstable();
    }
    circles.sort_unstable();
    circles
}

#[cfg(test)]
mod tests {
    use super::super::modules::Graph;
    use super::{Listed, check};

    const LISTED: [Listed; 2] = [
        Listed {
            package: "p",
            reason: "is one idea",
            files: &["a.rs", "b.rs"],
        },
        Listed {
            package: "q",
            reason: "is not looked at here",
            files: &["c.rs", "d.rs"],
        },
    ];

    fn expect(arrows: &[(&str, &str)], expected: &[&str]) {
        let mut graph = Graph::new();
        for (from, to) in arrows {
            let files = graph.entry((*from).to_owned()).or_default();
            files.insert((*to).to_owned());
        }
        let problems = check("p", &graph, &LISTED);
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, part) in problems.iter().zip(expected) {
            assert!(problem.contains(part), "{problem}");
        }
    }

    #[test]
    fn circles_that_are_not_listed_are_found() {
        let listed = [("a.rs", "b.rs"), ("b.rs", "a.rs")];
        let and = |more: &[(&'static str, &'static str)]| [&listed, more].concat();
        expect(&listed, &[]);
        expect(&and(&[("a.rs", "c.rs"), ("c.rs", "d.rs")]), &[]);
        let two = and(&[("c.rs", "d.rs"), ("d.rs", "c.rs")]);
        expect(&two, &["c.rs -> d.rs; d.rs -> c.rs"]);
        // A listed cycle that has grown counts as another cycle.
        let grown = and(&[("b.rs", "c.rs"), ("c.rs", "a.rs")]);
        expect(&grown, &["a.rs -> b.rs; b.rs -> a.rs, c.rs; c.rs -> a.rs"]);
    }

    #[test]
    fn a_listed_circle_that_is_open_is_found() {
        expect(
            &[("a.rs", "b.rs")],
            &["a.rs is in no circle", "b.rs is in no circle"],
        );
        let smaller = [("a.rs", "c.rs"), ("c.rs", "a.rs")];
        expect(&smaller, &["a.rs -> c.rs", "b.rs is in no circle"]);
    }
}
