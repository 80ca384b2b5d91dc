//! Nodes compared with a map, and nodes of random words.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::iter;

use fastrand::Rng;
use pando_format::page::{HEADER_WORDS, PageKind, SLOT_OVERFLOW, WORD_ID, WORD_KIND};
use pando_format::{PageId, PageSize, TreeId};

use super::check::{check_node, check_page, prepare_image};
use super::cut;
use super::edit::{self, Fit};
use super::list::{Count, Record, RecordList};
use super::search::{Spot, compare_slots};
use super::view::{self, ChildWord, Node};
use crate::overflow::OverflowHeader;
use crate::word::{Store, Word};

const PAGE_SIZES: [usize; 3] = [4096, 16384, 65536];

/// Returns `len` random bytes.
fn random_bytes(random: &mut Rng, len: usize) -> Vec<u8> {
    iter::repeat_with(|| random.u8(..)).take(len).collect()
}

/// Returns a key of one of many shapes. `style` keeps a test within one family of shapes, so that
/// keys repeat.
fn key(random: &mut Rng, style: usize, key_bytes_max: usize) -> Vec<u8> {
    match style {
        0 => {
            let len = random.usize(..9);
            (0..len)
                .map(|_| b"\0\x01a\xFF"[random.usize(..4)])
                .collect()
        }
        1 => format!("user:{:012}", random.usize(..3000)).into_bytes(),
        2 => {
            let len = random.usize(..24);
            random_bytes(random, len)
        }
        3 => {
            let mut key = vec![b'p'; random.usize(..3) * 40];
            key.extend(random_bytes(random, 2));
            key
        }
        4 => {
            let filler = [0, 0xFF][random.usize(..2)];
            vec![filler; random.usize(..key_bytes_max.min(300))]
        }
        // Keys of several kinds, many of which differ only behind their heads, there in few bytes,
        // or in length, around those that two words have.
        6 => {
            let mut key = [&b"key:"[..], b"count", b"c"][random.usize(..3)].to_vec();
            let len = random.usize(..4) * 6 + random.usize(..4);
            key.extend(iter::repeat_n([0, b'0'][random.usize(..2)], len));
            key.extend((0..random.usize(..3)).map(|_| b"\0\x01a\xFF"[random.usize(..4)]));
            key
        }
        _ => {
            let mut key = vec![b'x'; key_bytes_max - 2];
            if random.usize(..20) == 0 {
                key[0] = b'a' + random.usize(..26) as u8;
            }
            key.extend(random_bytes(random, 2));
            key
        }
    }
}

fn new_page(page_size: PageSize, kind: PageKind, level: u8) -> Vec<u64> {
    new_page_of(page_size, kind, level, TreeId(0))
}

fn new_page_of(page_size: PageSize, kind: PageKind, level: u8, tree: TreeId) -> Vec<u64> {
    let mut page = vec![0u64; page_size.words()];
    page[WORD_ID] = 77 << 32;
    page[WORD_KIND] = u64::from(tree.0);
    view::reset(&mut page[..], kind, level);
    page
}

fn content(page: &[u64]) -> Vec<(Vec<u8>, Vec<u8>, u64)> {
    let node = Node::open(page);
    let mut key = Vec::new();
    (0..node.count())
        .map(|index| {
            node.copy_key(index, &mut key);
            let slot = node.slot(index);
            let mut value = Vec::new();
            let child = if node.is_inner() {
                node.child(index).0
            } else {
                node.append_value(slot, &mut value);
                0
            };
            (key.clone(), value, child)
        })
        .collect()
}

fn image(page: &[u64]) -> Vec<u8> {
    page.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn leaf_record<'a>(key: &'a [u8], value: &'a [u8]) -> Record<'a> {
    Record {
        key,
        value,
        flags: 0,
        child: ChildWord(0),
    }
}

/// Splits the page as a tree does. Returns both sides.
fn split(
    page: &mut [u64],
    fit: Fit,
    spot: Spot,
    record: &Record<'_>,
    list: &RecordList,
) -> Vec<u64> {
    let (kind, level) = if list.is_inner() {
        (PageKind::Inner, 1)
    } else {
        (PageKind::Leaf, 0)
    };
    let page_size = PageSize::new(page.len() * 8).unwrap();
    let mut right = new_page(page_size, kind, level);
    if fit == Fit::Alone {
        let mut alone = RecordList::default();
        alone.load_one(record, false, page.len());
        let old = list.prefix_to_fit(0, list.len()).unwrap();
        let new = alone.prefix_to_fit(0, 1).unwrap();
        if spot.index == 0 {
            list.build(&mut right[..], 0, list.len(), old);
            alone.build(page, 0, 1, new);
        } else {
            assert_eq!(spot.index, list.len(), "sorts before or after all");
            alone.build(&mut right[..], 0, 1, new);
        }
    } else {
        let cut = cut::balanced(list).expect("a cut always exists");
        list.build(
            &mut right[..],
            cut,
            list.len(),
            list.prefix_to_fit(cut, list.len()).unwrap(),
        );
        list.build(page, 0, cut, list.prefix_to_fit(0, cut).unwrap());
    }
    right
}

fn run_leaf_model(seed: u64, page_size: PageSize, style: usize, steps: usize) {
    let mut random = Rng::with_seed(seed);
    let mut page = new_page(page_size, PageKind::Leaf, 0);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut list = RecordList::default();
    for step in 0..steps {
        let key = key(&mut random, style, page_size.key_bytes_max());
        let spot = Node::open(&page).find(&key);
        assert_eq!(spot.exact, model.contains_key(&key));
        assert_eq!(spot.index, model.range(..key.clone()).count());
        let node = Node::open(&page);
        assert_eq!(node.find_at(node.candidate(&key), &key), spot);
        if random.usize(..4) == 0 {
            if spot.exact {
                edit::remove(&mut page[..], spot.index);
                model.remove(&key);
            }
        } else {
            let mut len = [0, 8, 30, 100, 2000][random.usize(..5)];
            while !cut::is_inline(page_size, key.len(), len) {
                len /= 2;
            }
            let value = random_bytes(&mut random, len);
            let record = leaf_record(&key, &value);
            let fit = edit::prepare(&Node::open(&page), spot, &record, &mut list);
            model.insert(key.clone(), value.clone());
            match fit {
                Fit::InPlace | Fit::Rebuild => {
                    edit::put(&mut page[..], fit, spot, &record, &list);
                }
                Fit::Torn => panic!("a sound page"),
                Fit::Split | Fit::Alone => {
                    let right = split(&mut page, fit, spot, &record, &list);
                    let both: Vec<_> = content(&page).into_iter().chain(content(&right)).collect();
                    assert!(both.iter().map(|r| (&r.0, &r.1)).eq(&model));
                    check_page(&image(&right)).unwrap();
                    if random.bool() {
                        page = right;
                    }
                    model = content(&page).into_iter().map(|r| (r.0, r.1)).collect();
                }
            }
        }
        if step % 7 == 0 {
            assert_eq!(
                check_page(&image(&page)),
                Ok(()),
                "seed {seed}, step {step}"
            );
            assert!(content(&page).iter().map(|r| (&r.0, &r.1)).eq(&model));
        }
    }
}

#[test]
fn a_leaf_holds_what_a_map_holds() {
    for bytes in PAGE_SIZES {
        let page_size = PageSize::new(bytes).unwrap();
        for style in 0..7 {
            run_leaf_model(style as u64 + bytes as u64, page_size, style, 1500);
        }
    }
}

/// Checks that each child of a counted tree has as many records as its page id tells.
fn check_counts(node: &Node<'_, u64>) {
    for index in (0..node.count()).filter(|_| node.is_counted()) {
        let child = node.child(index);
        assert_eq!(node.records_below(index), child.page().0.into());
    }
}

#[test]
fn an_inner_node_leads_to_the_child_that_covers_a_key() {
    for (style, tree) in (0..7).flat_map(|style| [(style, TreeId(9)), (style, TreeId(9).counted())])
    {
        let page_size = PageSize::new(4096).unwrap();
        let mut random = Rng::with_seed(style as u64);
        let mut list = RecordList::default();
        let mut page = new_page_of(page_size, PageKind::Inner, 1, tree);
        let count_of = |child: ChildWord| Count::of(tree, child.page().0.into());
        let child = ChildWord::new(PageId(1), 9);
        let count = count_of(child);
        let first = Record::separator(&[], child, &count);
        let mut model = BTreeMap::from([(Vec::new(), first.child)]);
        list.load_one(&first, true, page.len());
        list.build(&mut page[..], 0, 1, 0);
        for step in 0..1500u32 {
            let key = key(&mut random, style, page_size.key_bytes_max());
            let node = Node::open(&page);
            let covering = model.range(..=key.clone()).next_back().unwrap();
            assert_eq!(node.child(node.child_for(&key)), *covering.1);
            let below = model.range(..key.clone()).next_back();
            assert_eq!(
                node.child(node.child_below(&key)),
                *below.unwrap_or(covering).1
            );
            if random.usize(..3) == 0 && node.count() > 1 {
                let index = random.usize(..node.count());
                let (removed, _) = model.iter().nth(index).unwrap();
                let removed = removed.clone();
                model.remove(&removed);
                if index == 0 {
                    let (key, child) = model.pop_first().unwrap();
                    drop(key);
                    model.insert(Vec::new(), child);
                }
                edit::remove(&mut page[..], index);
            } else if !key.is_empty() && !node.find(&key).exact {
                let child = ChildWord::new(PageId(step + 100), step);
                let count = count_of(child);
                let (spot, record) = (node.find(&key), Record::separator(&key, child, &count));
                let fit = edit::prepare(&node, spot, &record, &mut list);
                match fit {
                    Fit::InPlace | Fit::Rebuild => {
                        edit::put(&mut page[..], fit, spot, &record, &list);
                        model.insert(key, child);
                    }
                    _ => {
                        assert!(list.load(&Node::open(&page)));
                        let cut = cut::balanced(&list).expect("a cut always exists");
                        list.build(&mut page[..], 0, cut, list.prefix_to_fit(0, cut).unwrap());
                        model = model.into_iter().take(cut).collect();
                    }
                }
            }
            assert_eq!(
                check_page(&image(&page)),
                Ok(()),
                "style {style}, step {step}"
            );
            let entries = content(&page);
            assert!(
                entries
                    .iter()
                    .map(|r| (&r.0, r.2))
                    .eq(model.iter().map(|(k, c)| (k, c.0)))
            );
            check_counts(&Node::open(&page));
        }
    }
}

#[test]
fn a_key_that_differs_in_one_byte_or_in_length_is_not_taken_for_another() {
    let page_size = PageSize::new(4096).unwrap();
    let mut list = RecordList::default();
    let is_found = |page: &[u64], key: &[u8]| {
        let node = Node::open(page);
        let spot = node.find(key);
        assert_eq!(node.find_at(node.candidate(key), key), spot);
        spot
    };
    for (len, prefix) in (0..40).flat_map(|len| (0..=len).map(move |prefix| (len, prefix))) {
        let key = vec![b'k'; len];
        // The words behind the key are those of its value.
        list.load_one(&leaf_record(&key, &[b'k'; 16]), false, page_size.words());
        let mut page = new_page(page_size, PageKind::Leaf, 0);
        list.build(&mut page[..], 0, 1, prefix);
        let (index, exact) = (0, true);
        assert_eq!(is_found(&page, &key), Spot { index, exact });
        let mut others = vec![[&key[..], b"k"].concat()];
        others.extend(key.split_last().map(|(_, shorter)| shorter.to_vec()));
        for at in 0..len {
            for byte in [0, b'k' - 1, b'k' + 1, 0xFF] {
                others.push(key.clone());
                others.last_mut().unwrap()[at] = byte;
            }
        }
        for other in others {
            let (index, exact) = (usize::from(other > key), false);
            assert_eq!(is_found(&page, &other), Spot { index, exact }, "{other:?}");
        }
    }
}

#[test]
fn two_of_the_longest_records_and_any_third_can_be_split() {
    for bytes in PAGE_SIZES {
        let page_size = PageSize::new(bytes).unwrap();
        let key_bytes = page_size.key_bytes_max();
        let value_bytes_max = (0..bytes)
            .take_while(|len| cut::is_inline(page_size, key_bytes, *len))
            .last()
            .unwrap();
        assert!(
            key_bytes + value_bytes_max > bytes * 2 / 5,
            "about half a page"
        );
        for middle in 0..3 {
            let mut list = RecordList::default();
            let keys: Vec<_> = (0..3)
                .map(|n| [&vec![b'k'; key_bytes - 1][..], &[n]].concat())
                .collect();
            let value = vec![7; value_bytes_max];
            let mut page = new_page(page_size, PageKind::Leaf, 0);
            for n in (0..3).filter(|n| *n != middle).chain([middle]) {
                let record = leaf_record(&keys[n], &value);
                let spot = Node::open(&page).find(&keys[n]);
                match edit::prepare(&Node::open(&page), spot, &record, &mut list) {
                    Fit::Split => {
                        assert!(cut::balanced(&list).is_some());
                    }
                    fit => edit::put(&mut page[..], fit, spot, &record, &list),
                }
            }
        }
    }
}

#[test]
fn a_separator_is_the_shortest_between_its_sides() {
    let mut list = RecordList::default();
    let mut separator = Vec::new();
    for (left, right, expected) in [
        ("apple", "banana", "b"),
        ("a", "a\0", "a\0"),
        ("user:0001", "user:0002x", "user:0002"),
        ("", "z", "z"),
    ] {
        list.load_one(&leaf_record(left.as_bytes(), b""), false, 512);
        let spot = Spot {
            index: 1,
            exact: false,
        };
        assert!(list.put(spot, &leaf_record(right.as_bytes(), b"")));
        list.copy_separator(1, &mut separator);
        assert_eq!(separator, expected.as_bytes());
    }
}

/// Calls everything that optimistic code calls, and only checks that it returns.
fn exercise(words: &[u64], random: &mut Rng) {
    let node = Node::open(words);
    let (mut list, mut right) = (RecordList::default(), RecordList::default());
    let mut out = Vec::new();
    for style in 0..6 {
        let key = key(random, style, words.len() * 2);
        let spot = node.find(&key);
        assert!(spot.index <= node.count().max(1));
        node.child_for(&key);
        node.child_below(&key);
        node.find_at(node.candidate(&key), &key);
        let record = Record {
            key: &key,
            value: if node.is_inner() { &[] } else { b"value" },
            flags: 0,
            child: ChildWord(3),
        };
        edit::prepare(&node, spot, &record, &mut list);
        if list.load(&node) {
            for index in 0..list.len() {
                list.copy_key(index, &mut out);
                if index > 0 && index % 50 == 0 {
                    list.prefix_to_fit(index, list.len());
                }
            }
            if right.load(&node) && list.join(&right, &key) {
                list.prefix_within(0, list.len(), words.len());
            }
        }
    }
    for index in (0..node.count()).step_by(17) {
        node.copy_key(index, &mut out);
        let slot = node.slot(index);
        out.clear();
        node.append_value(slot, &mut out);
        assert!(out.len() <= words.len() * 8);
        let _none = OverflowHeader::read(&node, slot);
    }
    let mut bytes = image(words);
    let _wrong = check_page(&bytes);
    prepare_image(&mut bytes);
}

#[test]
fn torn_words_never_panic() {
    let mut random = Rng::with_seed(5);
    for round in 0..60 {
        let mut words: Vec<u64> = (0..512).map(|_| random.u64(..)).collect();
        if round % 3 != 0 {
            let kind = [PageKind::Leaf, PageKind::Inner][round % 2];
            words[1] = u64::from(kind.encode()) << 32 | u64::from(round % 2 == 1) << 40;
        }
        exercise(&words, &mut random);
    }
}

#[test]
fn a_sound_page_with_torn_words_never_panics_and_is_not_accepted_out_of_order() {
    let mut random = Rng::with_seed(6);
    let page_size = PageSize::new(4096).unwrap();
    let mut list = RecordList::default();
    let mut page = new_page(page_size, PageKind::Leaf, 0);
    for n in 0..40 {
        let key = format!("user:{:08}", n * 7919 % 1000).into_bytes();
        let record = leaf_record(&key, b"0123456789");
        let spot = Node::open(&page).find(&key);
        let fit = edit::prepare(&Node::open(&page), spot, &record, &mut list);
        edit::put(&mut page[..], fit, spot, &record, &list);
    }
    assert_eq!(check_page(&image(&page)), Ok(()));
    let mut refused = 0;
    for _ in 0..300 {
        let mut torn = page.clone();
        for _ in 0..=random.usize(..3) {
            let range = [60, 511][random.usize(..2)];
            let index = 1 + random.usize(..range);
            torn[index] ^= 1 << random.usize(..64);
        }
        exercise(&torn, &mut random);
        if check_page(&image(&torn)).is_ok() {
            let keys: Vec<_> = content(&torn).into_iter().map(|r| r.0).collect();
            assert!(keys.is_sorted_by(|a, b| a < b));
        } else {
            refused += 1;
        }
    }
    assert!(refused > 100, "only {refused} refused");
}

/// A word that another thread replaces after some reads.
struct Replaced {
    before: u64,
    after: u64,
    reads_before: Cell<u32>,
}

impl Word for Replaced {
    fn get(&self) -> u64 {
        let left = self.reads_before.get();
        self.reads_before.set(left.saturating_sub(1));
        if left > 0 { self.before } else { self.after }
    }
}

/// The length of a value changes between the reads of one load: what is loaded anyway is whole, and
/// can be laid out.
#[test]
fn a_list_of_a_leaf_that_changes_meanwhile_is_whole_or_refused() {
    let page_size = PageSize::new(4096).unwrap();
    let mut list = RecordList::default();
    let mut page = new_page(page_size, PageKind::Leaf, 0);
    for n in 0..20_u32 {
        let key = format!("user:{n:08}").into_bytes();
        let record = leaf_record(&key, &[7; 50]);
        let spot = Node::open(&page).find(&key);
        let fit = edit::prepare(&Node::open(&page), spot, &record, &mut list);
        edit::put(&mut page[..], fit, spot, &record, &list);
    }
    let (mut refused, mut loaded) = (0, 0);
    for index in 0..20 {
        let offset = Node::open(&page).slot(index).offset();
        for (reads, length) in (0..5).flat_map(|reads| {
            let lengths = [0, 1, 42, 49, 50, 56, 57, 400, 0xFFFF];
            lengths.map(|length| (reads, length))
        }) {
            let words: Vec<Replaced> = (page.iter().enumerate())
                .map(|(at, word)| Replaced {
                    before: *word,
                    after: match at == offset {
                        true => *word & !0xFFFF | length,
                        false => *word,
                    },
                    reads_before: Cell::new(if at == offset { reads } else { u32::MAX }),
                })
                .collect();
            if !list.load(&Node::open(&words[..])) {
                refused += 1;
                continue;
            }
            loaded += 1;
            assert_eq!(list.len(), 20);
            if let Some(prefix_bytes) = list.prefix_to_fit(0, 20) {
                let mut copy = new_page(page_size, PageKind::Leaf, 0);
                list.build(&mut copy[..], 0, 20, prefix_bytes);
                assert_eq!(check_page(&image(&copy)), Ok(()));
                let keys = content(&copy).into_iter().map(|(key, ..)| key);
                assert!(keys.eq((0..20).map(|n| format!("user:{n:08}").into_bytes())));
            }
        }
    }
    assert!(refused > 100 && loaded > 100, "{refused} and {loaded}");
}

#[test]
fn images_hold_no_hints_and_tell_what_they_name() {
    let page_size = PageSize::new(4096).unwrap();
    let mut list = RecordList::default();
    let mut inner = new_page(page_size, PageKind::Inner, 1);
    let children = [ChildWord::new(PageId(3), 4), ChildWord::new(PageId(5), 6)];
    build_root(&mut inner, children, &mut list);
    let mut bytes = image(&inner);
    assert!(!prepare_image(&mut bytes).names_pages);
    let words = bytes.as_chunks::<8>().0;
    let node = Node::open(words);
    assert_eq!((node.child(0).page(), node.child(0).hint()), (PageId(3), 0));
    assert_eq!((node.child(1).page(), node.child(1).hint()), (PageId(5), 0));

    let mut leaf = new_page(page_size, PageKind::Leaf, 0);
    let value: Vec<u8> = [5000u32, 2, 8, 9]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    for (key, flags) in [(b"a", 0), (b"b", SLOT_OVERFLOW)] {
        assert!(!prepare_image(&mut image(&leaf)).names_pages);
        let record = Record {
            flags,
            ..leaf_record(key, &value)
        };
        let spot = Node::open(&leaf).find(key);
        let fit = edit::prepare(&Node::open(&leaf), spot, &record, &mut list);
        edit::put(&mut leaf[..], fit, spot, &record, &list);
    }
    assert!(prepare_image(&mut image(&leaf)).names_pages);
    assert_eq!(check_page(&image(&leaf)), Ok(()));
    let node = Node::open(&leaf);
    let header = OverflowHeader::read(&node, node.slot(1)).unwrap();
    assert_eq!(header.ids(), [PageId(8), PageId(9)]);
    // A value of 5000 bytes needs two pages of 4 KiB, so one page is wrong.
    let mut wrong = leaf.clone();
    wrong[..].store(node.slot(1).value_start(), 5000 | 1 << 32);
    assert!(check_page(&image(&wrong)).is_err());
}

#[test]
fn removal_of_records_gives_all_words_back() {
    let page_size = PageSize::new(4096).unwrap();
    let mut page = new_page(page_size, PageKind::Leaf, 0);
    let empty = Node::open(&page).free_bytes();
    assert_eq!(empty, (512 - HEADER_WORDS) * 8);
    let mut list = RecordList::default();
    let mut random = Rng::with_seed(1);
    let keys: Vec<_> = (0..20).map(|_| random_bytes(&mut random, 12)).collect();
    for key in &keys {
        let (spot, record) = (Node::open(&page).find(key), leaf_record(key, b"value"));
        let fit = edit::prepare(&Node::open(&page), spot, &record, &mut list);
        edit::put(&mut page[..], fit, spot, &record, &list);
    }
    for key in &keys {
        let spot = Node::open(&page).find(key);
        assert!(spot.exact);
        edit::remove(&mut page[..], spot.index);
        assert_eq!(check_node(&Node::open(&page), page_size), Ok(()));
    }
    assert_eq!(Node::open(&page).free_bytes(), empty);
}

/// Returns a valid leaf of three records.
fn small_leaf() -> Vec<u64> {
    let page_size = PageSize::new(4096).unwrap();
    let mut page = new_page(page_size, PageKind::Leaf, 0);
    let mut list = RecordList::default();
    for key in [&b"prefix-one"[..], b"prefix-three", b"prefix-two"] {
        let (spot, record) = (Node::open(&page).find(key), leaf_record(key, b"value"));
        let fit = edit::prepare(&Node::open(&page), spot, &record, &mut list);
        edit::put(&mut page[..], fit, spot, &record, &list);
    }
    page
}

#[test]
fn every_kind_of_damage_is_refused() {
    let sound = small_leaf();
    assert_eq!(check_page(&image(&sound)), Ok(()));
    assert_eq!(Node::open(&sound).prefix_bytes(), b"prefix-".len());
    let refuse = |expected: &str, damage: &dyn Fn(&mut [u64])| {
        let mut page = sound.clone();
        damage(&mut page);
        let what = check_page(&image(&page)).expect_err(expected);
        assert!(what.contains(expected), "{what}, not {expected}");
    };
    let slot = |n: usize| HEADER_WORDS + n;
    refuse("unknown kind", &|page| page[1] |= 0xF0 << 32);
    refuse("flags or a compression", &|page| page[1] |= 1 << 48);
    refuse("leaf above level 0", &|page| page[1] |= 1 << 40);
    refuse("more entries than room", &|page| page[5] |= 0xFFFF);
    refuse("ghosts", &|page| page[5] |= 1 << 16);
    refuse("overlaps its slots", &|page| page[5] &= !(0xFFFF << 32));
    refuse("dead words", &|page| page[5] += 1 << 48);
    refuse("prefix longer", &|page| page[6] |= 0xFFFF << 16);
    refuse("out of order", &|page| page.swap(slot(0), slot(1)));
    refuse("records that overlap", &|page| {
        page[slot(1)] = page[slot(0)]
    });
    refuse("outside its heap", &|page| page[slot(1)] &= !(0x1FFF << 19));
    refuse("key that is too long", &|page| page[slot(1)] |= 0xFFFF);
    refuse("reserved flags", &|page| page[slot(1)] |= 1 << 16);
    refuse("list of chunks", &|page| page[slot(1)] |= 1 << 18);
    refuse("overflow header", &|page| page[slot(1)] |= SLOT_OVERFLOW);
    let bytes = image(&sound);
    assert!(check_page(&bytes[..4000]).is_err());
}

#[test]
fn damaged_inner_nodes_are_refused() {
    let page_size = PageSize::new(4096).unwrap();
    let mut sound = new_page(page_size, PageKind::Inner, 1);
    let children = [ChildWord::new(PageId(3), 0), ChildWord::new(PageId(5), 0)];
    build_root(&mut sound, children, &mut RecordList::default());
    assert_eq!(check_page(&image(&sound)), Ok(()));
    let refuse = |expected: &str, damage: &dyn Fn(&mut [u64])| {
        let mut page = sound.clone();
        damage(&mut page);
        let what = check_page(&image(&page)).expect_err(expected);
        assert!(what.contains(expected), "{what}, not {expected}");
    };
    refuse("impossible level", &|page| page[1] &= !(0xFF << 40));
    refuse("impossible level", &|page| page[1] |= 16 << 40);
    refuse("without children", &|page| page[5] &= !0xFFFF);
    refuse("first entry has a key", &|page| page[HEADER_WORDS] = 1);
    refuse("impossible child", &|page| page[HEADER_WORDS + 1] = 77);
    refuse("impossible child", &|page| {
        page[HEADER_WORDS + 3] = u64::MAX
    });
    refuse("reserved flags", &|page| {
        page[HEADER_WORDS + 2] |= SLOT_OVERFLOW
    });
}

/// Makes the page a root with two children.
fn build_root(page: &mut [u64], [left, right]: [ChildWord; 2], list: &mut RecordList) {
    let count = Count::of(Node::open(&*page).tree(), 3);
    let left = Record::separator(&[], left, &count);
    let right = Record::separator(b"separator", right, &count);
    edit::build_root(page, &left, &right, list);
}

#[test]
fn damaged_inner_nodes_of_counted_trees_are_refused() {
    let page_size = PageSize::new(4096).unwrap();
    let mut sound = new_page_of(page_size, PageKind::Inner, 1, TreeId(9).counted());
    let children = [ChildWord::new(PageId(3), 0), ChildWord::new(PageId(5), 0)];
    build_root(&mut sound, children, &mut RecordList::default());
    assert_eq!(check_page(&image(&sound)), Ok(()));
    let record = |page: &[u64], index| Node::open(page).slot(index).offset();
    let refuse = |expected: &str, damage: &dyn Fn(&mut [u64])| {
        let mut page = sound.clone();
        damage(&mut page);
        let what = check_page(&image(&page)).expect_err(expected);
        assert!(what.contains(expected), "{what}, not {expected}");
    };
    refuse("first entry has a key", &|page| page[HEADER_WORDS] |= 1);
    refuse("does not count", &|page| page[HEADER_WORDS] = 0);
    refuse("does not count", &|page| page[record(page, 0)] += 1);
    refuse("does not count", &|page| page[record(page, 1)] &= !0xFFFF);
    refuse("overlap", &|page| {
        page[HEADER_WORDS] = page[HEADER_WORDS + 2] & 0xFFF8_0000
    });
    // Without the bit of the tree's id, the records are none that an inner node may have.
    refuse("", &|page| page[1] &= !(1 << 31));
}

/// Returns an inner node with the children 10 and up, separated by `keys`.
fn inner_page(keys: &[&[u8]]) -> Vec<u64> {
    let mut page = new_page(PageSize::new(4096).unwrap(), PageKind::Inner, 1);
    let mut list = RecordList::default();
    let first = Record::separator(&[], ChildWord(10), &Count::NONE);
    list.load_one(&first, true, page.len());
    for (index, key) in (1..).zip(keys) {
        let exact = false;
        let record = Record::separator(key, ChildWord(10 + index as u64), &Count::NONE);
        assert!(list.put(Spot { index, exact }, &record));
    }
    let prefix_bytes = list.prefix_to_fit(0, list.len()).unwrap();
    list.build(&mut page[..], 0, list.len(), prefix_bytes);
    page
}

#[test]
fn inner_nodes_are_joined_by_the_separator_whatever_it_is() {
    let load = |keys: &[&[u8]]| {
        let mut list = RecordList::default();
        assert!(list.load(&Node::open(&inner_page(keys))));
        list
    };
    // The last two separators do not fit the children: they stand for a parent that changed during
    // the read.
    for separator in [&b"prefix m"[..], b"", b"pre"] {
        let mut list = load(&[b"prefix a", b"prefix b"]);
        assert!(list.join(&load(&[b"prefix x", b"prefix y"]), separator));
        let mut keys = vec![Vec::new(); list.len()];
        for (index, key) in keys.iter_mut().enumerate() {
            list.copy_key(index, key);
        }
        let expected = [b"", &b"prefix a"[..], b"prefix b", separator];
        assert_eq!(keys[..4], expected);
        assert_eq!(keys[4..], [b"prefix x", b"prefix y"]);
    }
}

#[test]
fn a_longer_prefix_is_not_taken_when_the_old_one_fits_better() {
    let page_size = PageSize::new(4096).unwrap();
    let mut page = new_page(page_size, PageKind::Leaf, 0);
    let mut list = RecordList::default();
    // Without a prefix, three records of 168 words fill the page exactly, with their slots.
    let value = [7; 166 * 8];
    for key in [&b"ab"[..], b"ac", b"Zz"] {
        let value = if key == b"Zz" { &[] } else { &value[..] };
        let (spot, record) = (Node::open(&page).find(key), leaf_record(key, value));
        let fit = edit::prepare(&Node::open(&page), spot, &record, &mut list);
        edit::put(&mut page[..], fit, spot, &record, &list);
    }
    let spot = Node::open(&page).find(b"Zz");
    edit::remove(&mut page[..], spot.index);
    let (spot, record) = (Node::open(&page).find(b"ad"), leaf_record(b"ad", &value));
    let fit = edit::prepare(&Node::open(&page), spot, &record, &mut list);
    assert_eq!(fit, Fit::Rebuild);
    edit::put(&mut page[..], fit, spot, &record, &list);
    assert_eq!(Node::open(&page).free_bytes(), 0);
    assert_eq!(list.prefix_to_fit(0, list.len()).unwrap_or(0), 0);
    assert_eq!(check_page(&image(&page)), Ok(()));
}

#[test]
fn slots_compare_as_their_keys_do() {
    let page_size = PageSize::new(4096).unwrap();
    let mut random = Rng::with_seed(11);
    for style in [0, 1, 2, 3, 4, 5, 6, 0, 2, 3] {
        let mut page = new_page(page_size, PageKind::Leaf, 0);
        let mut list = RecordList::default();
        for _ in 0..60 {
            let key = key(&mut random, style, page_size.key_bytes_max());
            let (spot, record) = (Node::open(&page).find(&key), leaf_record(&key, b"v"));
            let fit = edit::prepare(&Node::open(&page), spot, &record, &mut list);
            if !matches!(fit, Fit::InPlace | Fit::Rebuild) {
                break;
            }
            edit::put(&mut page[..], fit, spot, &record, &list);
        }
        let (node, keys) = (Node::open(&page), content(&page));
        for (left, (left_key, ..)) in keys.iter().enumerate() {
            for (right, (right_key, ..)) in keys.iter().enumerate() {
                let order = compare_slots(node.words(), node.slot(left), node.slot(right));
                assert_eq!(order, left_key.cmp(right_key), "{left_key:?} {right_key:?}");
            }
        }
    }
}
