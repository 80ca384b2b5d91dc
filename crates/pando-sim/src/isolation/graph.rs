//! Circles of dependencies, and their names.
//!
//! In each strongly connected component the search begins with the most basic kind, and a
//! component in which one was found is not searched for the next:
//!
//! | step | edges                                | circles through | kind                         |
//! |------|--------------------------------------|-----------------|------------------------------|
//! | 1    | ww                                   | ww              | G0                           |
//! | 2    | ww, wr                               | wr              | G1c                          |
//! | 3    | ww, wr, rw, never two rw in a row    | rw              | G-single, else G-nonadjacent |
//! | 4    | ww, wr, rw                           | rw              | G2-item; of a range, G2      |
//! | 5    | all, and real time                   | real time       | real time                    |
//!
//! Step 3 searches a graph that has each transaction twice, as one that was reached by rw or not:
//! it has no circle exactly if a history can be of snapshots (Cerone and Gotsman 2018). A
//! shortest circle is looked for from a bounded number of edges, so the circle that is printed may
//! not be the shortest of all; but no component is left without one, except those of lost updates,
//! which are reported already.

use std::collections::HashSet;

use super::anomaly::{Anomaly, Kind};
use super::components::Graph;
use super::edge::{Edge, Why};
use super::history::Level;
use super::index::Index;

/// Edges of a component from which a short circle is looked for.
const TRIES: usize = 32;

/// A search in the graph of a history.
pub(super) struct Search<'a> {
    pub(super) index: &'a Index<'a>,
    pub(super) edges: &'a [Edge],
    /// Transactions, and moments behind them.
    pub(super) nodes: usize,
    /// Who lost an update of a key: it is reported already.
    pub(super) lost: &'a HashSet<(usize, usize)>,
}

/// Numbers of edges.
type Circle = Vec<usize>;
/// Number, and from and to among the nodes of one step.
type Arrow = (usize, usize, usize);

impl Search<'_> {
    /// Returns circles of what is promised to transactions of `level` and higher ones: overtaken
    /// reads count if they are theirs, and real time if it is behind them that others had ended.
    pub(super) fn circles(&self, level: Level) -> Vec<Anomaly> {
        let mut found = Vec::new();
        let mut tainted = vec![false; self.nodes];
        for step in [Self::g0, Self::g1c, Self::snapshot, Self::g2, Self::time] {
            for (kind, circle) in step(self, level, &tainted) {
                for edge in &circle {
                    tainted[self.edges[*edge].from] = true;
                }
                found.push(self.anomaly(kind, &circle));
            }
        }
        found
    }

    fn g0(&self, _: Level, tainted: &[bool]) -> Vec<(Kind, Circle)> {
        let arrows = self.arrows(|it| it.why == Why::Ww);
        self.shortest(&arrows, &arrows, tainted, |_| Some(Kind::G0))
    }

    fn g1c(&self, _: Level, tainted: &[bool]) -> Vec<(Kind, Circle)> {
        let arrows = self.arrows(|it| matches!(it.why, Why::Ww | Why::Wr));
        let starts = self.only(&arrows, |it| it.why == Why::Wr);
        self.shortest(&arrows, &starts, tainted, |_| Some(Kind::G1c))
    }

    fn snapshot(&self, level: Level, tainted: &[bool]) -> Vec<(Kind, Circle)> {
        let mut arrows = Vec::new();
        for (number, from, to) in self.arrows(|it| self.is_dependency(it, level)) {
            if self.edges[number].why.is_rw() {
                arrows.push((number, from, self.nodes + to));
            } else {
                arrows.push((number, from, to));
                arrows.push((number, self.nodes + from, to));
            }
        }
        let starts = self.only(&arrows, |it| it.why.is_rw());
        self.shortest(&arrows, &starts, tainted, |circle| {
            let kind = match self.overtaken(circle) {
                1 => Kind::GSingle,
                _ => Kind::GNonadjacent,
            };
            (!self.is_lost_update(circle)).then_some(kind)
        })
    }

    fn g2(&self, level: Level, tainted: &[bool]) -> Vec<(Kind, Circle)> {
        let arrows = self.arrows(|it| self.is_dependency(it, level));
        // Edges of ranges first: a circle is a G2 if it has one.
        let mut starts = self.only(&arrows, |it| it.why == Why::RwPredicate);
        starts.extend(self.only(&arrows, |it| it.why == Why::Rw));
        self.shortest(&arrows, &starts, tainted, |circle| {
            let has = |why| circle.iter().any(|it| self.edges[*it].why == why);
            let kind = match self.overtaken(circle) {
                1 => Kind::GSingle,
                _ if has(Why::RwPredicate) => Kind::G2,
                _ => Kind::G2Item,
            };
            (!self.is_lost_update(circle)).then_some(kind)
        })
    }

    fn time(&self, level: Level, tainted: &[bool]) -> Vec<(Kind, Circle)> {
        let count = self.index.transactions.len();
        let arrows = self.arrows(|it| match it.why {
            Why::RealTime => it.to >= count || self.index.levels[it.to] >= level,
            _ => self.is_dependency(it, level),
        });
        let starts = self.only(&arrows, |it| it.why == Why::RealTime && it.from < count);
        self.shortest(&arrows, &starts, tainted, |_| Some(Kind::RealTime))
    }

    /// Says whether it is a dependency that counts at `level`.
    fn is_dependency(&self, edge: &Edge, level: Level) -> bool {
        match edge.why {
            Why::Ww | Why::Wr => true,
            Why::Rw | Why::RwPredicate => self.index.levels[edge.from] >= level,
            Why::RealTime => false,
        }
    }

    /// Returns how many reads of a circle are overtaken by a write.
    fn overtaken(&self, circle: &[usize]) -> usize {
        let is_rw = |it: &&usize| self.edges[**it].why.is_rw();
        circle.iter().filter(is_rw).count()
    }

    /// Says whether a circle is about one key, of which a member lost an update.
    fn is_lost_update(&self, circle: &[usize]) -> bool {
        let key = self.edges[circle[0]].key;
        let mut edges = circle.iter().map(|it| &self.edges[*it]);
        edges.clone().all(|it| it.key == key) && edges.any(|it| self.lost.contains(&(it.from, key)))
    }

    fn arrows(&self, takes: impl Fn(&Edge) -> bool) -> Vec<Arrow> {
        (self.edges.iter().enumerate())
            .filter(|(_, edge)| takes(edge))
            .map(|(number, edge)| (number, edge.from, edge.to))
            .collect()
    }

    fn only(&self, arrows: &[Arrow], takes: impl Fn(&Edge) -> bool) -> Vec<Arrow> {
        let takes = |it: &&Arrow| takes(&self.edges[it.0]);
        arrows.iter().filter(takes).copied().collect()
    }

    /// Returns for each component that has no tainted member its best circle through one of
    /// `starts`: of the lowest kind, then the shortest. `name` says the kind, or that it is none.
    fn shortest(
        &self,
        arrows: &[Arrow],
        starts: &[Arrow],
        tainted: &[bool],
        name: impl Fn(&[usize]) -> Option<Kind>,
    ) -> Vec<(Kind, Circle)> {
        // Twice: in the third step every transaction is two nodes.
        let graph = Graph::new(2 * self.nodes, arrows);
        let components = graph.components();
        let mut tries = vec![0; 2 * self.nodes];
        let mut best: Vec<Option<(Kind, Circle)>> = vec![None; 2 * self.nodes];
        for (node, component) in components.iter().enumerate() {
            if let Some(component) = component
                && tainted[node % self.nodes]
            {
                tries[*component] = TRIES;
            }
        }
        let is_rw = |edge: usize| self.edges[edge].why.is_rw();
        for (edge, from, to) in starts {
            let Some(component) = components[*from].filter(|it| components[*to] == Some(*it))
            else {
                continue;
            };
            if tries[component] == TRIES {
                continue;
            }
            tries[component] += 1;
            let inside = |node: usize| components[node] == Some(component);
            // With one overtaken read if that is possible.
            let back = graph
                .path(*to, *from, |edge, node| inside(node) && !is_rw(edge))
                .or_else(|| graph.path(*to, *from, |_, node| inside(node)));
            let mut circle = vec![*edge];
            circle.extend(back.expect("a component has a path between any two members"));
            if let Some(kind) = name(&circle) {
                let rank = |kind: Kind, circle: &Circle| (kind, circle.len());
                let old = best[component].as_ref();
                if old.is_none_or(|(old, it)| rank(kind, &circle) < rank(*old, it)) {
                    best[component] = Some((kind, circle));
                }
            }
        }
        best.into_iter().flatten().collect()
    }

    fn anomaly(&self, kind: Kind, circle: &[usize]) -> Anomaly {
        let count = self.index.transactions.len();
        let (mut transactions, mut keys, mut text) = (Vec::new(), Vec::new(), String::new());
        let mut judged = Level::Serializable;
        for edge in circle.iter().map(|it| &self.edges[*it]) {
            if edge.from < count {
                let id = self.index.id(edge.from);
                transactions.push(id);
                text += &format!("T{id} ");
            }
            match edge.why {
                Why::RealTime if edge.to >= count => {}
                Why::RealTime => {
                    judged = judged.min(self.index.levels[edge.to]);
                    text += "-real time-> ";
                }
                why => {
                    if why.is_rw() {
                        judged = judged.min(self.index.levels[edge.from]);
                    }
                    let key = self.index.keys[edge.key].key;
                    text += &format!("-{why}({key})-> ");
                    if !keys.contains(key) {
                        keys.push(key.clone());
                    }
                }
            }
        }
        text += &format!("T{}", transactions[0]);
        Anomaly {
            kind,
            transactions,
            keys,
            judged,
            text,
        }
    }
}
