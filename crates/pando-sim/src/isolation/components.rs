//! Directed graphs: strongly connected components (Tarjan 1972, without recursion, since the graph
//! of a history is as deep as it is long), and shortest paths inside of one.

use std::collections::{HashMap, VecDeque};

/// Edges by the node that they leave.
#[derive(Debug)]
pub(super) struct Graph {
    starts: Vec<usize>,
    /// Where an edge leads, and its number in the list that the graph was made from.
    arrows: Vec<(usize, usize)>,
}

/// Not met yet, or in no component.
const NONE: usize = usize::MAX;

impl Graph {
    /// Makes a graph of the edges (number, from, to).
    pub(super) fn new(nodes: usize, edges: &[(usize, usize, usize)]) -> Self {
        let mut starts = vec![0; nodes + 1];
        for (_, from, _) in edges {
            starts[from + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut places = starts.clone();
        let mut arrows = vec![(0, 0); edges.len()];
        for (number, from, to) in edges {
            arrows[places[*from]] = (*to, *number);
            places[*from] += 1;
        }
        Self { starts, arrows }
    }

    /// Returns for each node the number of its component, if that has more than one node.
    pub(super) fn components(&self) -> Vec<Option<usize>> {
        let mut tarjan = Tarjan {
            graph: self,
            order: vec![NONE; self.starts.len() - 1],
            low: vec![NONE; self.starts.len() - 1],
            component: vec![None; self.starts.len() - 1],
            done: vec![false; self.starts.len() - 1],
            stack: Vec::new(),
            met: 0,
            found: 0,
        };
        for node in 0..self.starts.len() - 1 {
            if tarjan.order[node] == NONE {
                tarjan.visit(node);
            }
        }
        tarjan.component
    }

    /// Returns the numbers of the edges of a shortest path, over edges that `takes` allows.
    pub(super) fn path(
        &self,
        from: usize,
        to: usize,
        takes: impl Fn(usize, usize) -> bool,
    ) -> Option<Vec<usize>> {
        let mut came: HashMap<usize, (usize, usize)> = HashMap::new();
        let mut open = VecDeque::from([from]);
        while let Some(node) = open.pop_front() {
            if node == to {
                let (mut path, mut at) = (Vec::new(), to);
                while at != from {
                    let (before, edge) = came[&at];
                    path.push(edge);
                    at = before;
                }
                path.reverse();
                return Some(path);
            }
            for (next, edge) in &self.arrows[self.starts[node]..self.starts[node + 1]] {
                if *next != from && !came.contains_key(next) && takes(*edge, *next) {
                    came.insert(*next, (node, *edge));
                    open.push_back(*next);
                }
            }
        }
        None
    }
}

struct Tarjan<'a> {
    graph: &'a Graph,
    order: Vec<usize>,
    low: Vec<usize>,
    component: Vec<Option<usize>>,
    done: Vec<bool>,
    stack: Vec<usize>,
    met: usize,
    found: usize,
}

impl Tarjan<'_> {
    fn visit(&mut self, root: usize) {
        // Node, and the place of its next arrow.
        let mut path = vec![(root, self.enter(root))];
        while let Some((node, arrow)) = path.last_mut() {
            let node = *node;
            if *arrow < self.graph.starts[node + 1] {
                let (next, _) = self.graph.arrows[*arrow];
                *arrow += 1;
                if self.order[next] == NONE {
                    let start = self.enter(next);
                    path.push((next, start));
                } else if !self.done[next] {
                    self.low[node] = self.low[node].min(self.order[next]);
                }
                continue;
            }
            path.pop();
            if let Some((parent, _)) = path.last() {
                self.low[*parent] = self.low[*parent].min(self.low[node]);
            }
            if self.low[node] == self.order[node] {
                self.close(node);
            }
        }
    }

    fn enter(&mut self, node: usize) -> usize {
        self.order[node] = self.met;
        self.low[node] = self.met;
        self.met += 1;
        self.stack.push(node);
        self.graph.starts[node]
    }

    fn close(&mut self, root: usize) {
        let start = self.stack.iter().rposition(|it| *it == root);
        let members = self.stack.split_off(start.expect("a root is on the stack"));
        let is_circle = members.len() > 1;
        for member in members {
            self.done[member] = true;
            self.component[member] = is_circle.then_some(self.found);
        }
        self.found += usize::from(is_circle);
    }
}
