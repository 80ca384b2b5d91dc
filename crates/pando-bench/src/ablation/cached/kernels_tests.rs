//! Every search against the product's, on nodes whose loads are counted.

use std::cell::Cell;

use pando_tree::node::search::Spot;
use pando_tree::node::view::{ChildWord, Node};
use pando_tree::word::Word;

use super::hint_lines::HintLines;
use super::kernels::{Hinted, Kernel, Plain, WIDE, Wide};
use super::rig::{Rig, value_of};
use crate::random::Random;

/// A word that counts how often it is read.
struct Counted<'a> {
    value: u64,
    reads: &'a Cell<usize>,
}

impl Word for Counted<'_> {
    fn get(&self) -> u64 {
        self.reads.set(self.reads.get() + 1);
        self.value
    }
}

/// Pages of a tree with such keys: the root, and leaves below it.
fn pages(keys: &[Vec<u8>]) -> Vec<Vec<u64>> {
    let rig = Rig::empty(keys.len() as u64, 4096, 1).unwrap();
    let mut scratch = pando_tree::Scratch::new();
    for key in keys {
        rig.insert(key, &value_of(1), &mut scratch).unwrap();
    }
    let words_of = |page| {
        let seen = rig.pool.optimistic(page, 0).unwrap();
        (0..512).map(|index| seen.words().load(index)).collect()
    };
    let mut pages: Vec<Vec<u64>> = vec![words_of(rig.tree.root)];
    let root = pages[0].clone();
    let node = Node::open(&root);
    if node.is_inner() {
        let children = (0..node.count()).map(|index| node.child(index));
        pages.extend(children.take(20).map(ChildWord::page).map(words_of));
    }
    pages
}

/// Keys, and those that are asked for: these, their neighbours, prefixes of them.
fn random_keys(random: &mut Random, count: usize, shape: u64) -> Vec<Vec<u8>> {
    let key = |random: &mut Random| -> Vec<u8> {
        let number = random.next();
        match shape {
            0 => [number, random.next()].map(u64::to_be_bytes).concat(),
            1 => format!("{:016}", number % 100_000).into_bytes(),
            // Heads tie, and lengths differ.
            2 => format!("same {:x}", number % 5000).into_bytes(),
            _ => vec![b'a'; (number % 300) as usize],
        }
    };
    (0..count).map(|_| key(random)).collect()
}

fn find<W: Word>(kernel: &impl Kernel, node: &Node<'_, W>, key: &[u8]) -> Spot {
    match node.is_inner() {
        true => kernel.find::<W, 1>(1, node, key),
        false => kernel.find::<W, 0>(1, node, key),
    }
}

#[test]
fn every_search_finds_what_the_product_finds() {
    let mut random = Random::new(1, 0);
    for shape in 0..4 {
        let keys = random_keys(&mut random, 1500, shape);
        let mut asked = keys.clone();
        asked.extend(random_keys(&mut random, 300, shape));
        asked.extend([Vec::new(), vec![0], vec![0xFF; 20]]);
        for key in &keys[..200] {
            asked.push(key[..key.len() / 2].to_vec());
            asked.push([key, &b"\0"[..]].concat());
        }
        for page in pages(&keys) {
            let node = Node::open(&page);
            let lines = HintLines::of_node(&node);
            for key in &asked {
                let expected = node.find(key);
                let found = [
                    find(&Plain, &node, key),
                    find(&Hinted(&lines), &node, key),
                    find(&Wide, &node, key),
                ];
                assert_eq!(found, [expected; 3], "{key:?} in {} entries", node.count());
            }
        }
    }
}

/// Mean loads of a search for keys that look random, in an inner node with many entries.
fn loads(kernel: &dyn Fn(&Node<'_, Counted<'_>>, &[u8]) -> Spot) -> f64 {
    let mut random = Random::new(2, 0);
    let keys = random_keys(&mut random, 3000, 0);
    let page = pages(&keys).swap_remove(0);
    let reads = Cell::new(0);
    let counted = |value: &u64| Counted {
        value: *value,
        reads: &reads,
    };
    let words: Vec<_> = page.iter().map(counted).collect();
    let node = Node::open(&words);
    assert!(node.is_inner() && node.count() > 64, "{}", node.count());
    reads.set(0);
    for key in &keys {
        assert!(kernel(&node, key).index <= node.count());
    }
    reads.get() as f64 / keys.len() as f64
}

#[test]
fn searches_read_what_their_names_say() {
    let page = {
        let keys = random_keys(&mut Random::new(2, 0), 3000, 0);
        pages(&keys).swap_remove(0)
    };
    let lines = HintLines::of_node(&Node::open(&page));
    let heads = loads(&|node, key| node.find(key));
    let plain = loads(&|node, key| find(&Plain, node, key));
    let hinted = loads(&|node, key| find(&Hinted(&lines), node, key));
    let wide = loads(&|node, key| find(&Wide, node, key));
    // A slot at each halving; whole keys cost their records, too.
    assert!((7.0..=12.0).contains(&heads), "{heads}");
    assert!(plain > 1.2 * heads, "{plain}, {heads}");
    // Sixteen hints stand for four halvings.
    assert!(hinted <= heads - 2.0, "{hinted}, {heads}");
    assert!(wide > WIDE as f64 / 2.0 && wide > heads, "{wide}");
}
