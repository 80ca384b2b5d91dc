//! Contents of the system trees: names of tables, trees that are being freed, writes that were put
//! aside.

use std::collections::{BTreeMap, BTreeSet};

use pando_format::catalogue::{FIRST_USER_TREE, GarbageRow, TABLE_NAME_BYTES_MAX, TreeRow};
use pando_format::lost::{decode_aside_key, decode_piece, join_aside_pieces};
use pando_format::{Lsn, TreeId};
use pando_tree::Tree;

use crate::error::Result;
use crate::salvage::report::SalvageReport;
use crate::salvage::walk::{Gap, RowValue, Walker};
use crate::tables::state::{CATALOGUE, GARBAGE};
use crate::verify::walk::Damage;

/// A write that was put aside.
pub(super) struct Aside {
    /// LSN of its batch.
    pub(super) lsn: Lsn,
    /// Number that tells it from others of its batch.
    pub(super) number: u32,
    pub(super) bytes: Vec<u8>,
}

/// Contents of the system trees.
pub(super) struct Names {
    pub(super) tables: Vec<(String, Tree)>,
    /// Trees whose names are not known.
    pub(super) nameless: Vec<TreeId>,
    /// Writes that were put aside, oldest first.
    pub(super) aside: Vec<Aside>,
    /// All names are known.
    pub(super) is_whole: bool,
}

impl Names {
    /// Reads both system trees as far as possible; adds damage to `report`.
    pub(super) fn read(walker: &mut Walker<'_>, report: &mut SalvageReport) -> Result<Self> {
        let (tables, is_whole) = tables(walker, report)?;
        let garbage = GarbageRows::read(walker, report)?;
        let mut nameless = Vec::new();
        if !is_whole {
            let named: BTreeSet<TreeId> = tables.iter().map(|(_, tree)| tree.id).collect();
            let is_unknown = |tree: &TreeId| {
                *tree >= FIRST_USER_TREE && !named.contains(tree) && !garbage.gone.contains(tree)
            };
            nameless = walker.trees()?.into_iter().filter(is_unknown).collect();
        }
        let aside = garbage.aside(report);
        Ok(Self {
            tables,
            nameless,
            aside,
            is_whole,
        })
    }
}

/// Returns the tables of the catalogue, and whether the catalogue could be read completely.
fn tables(
    walker: &mut Walker<'_>,
    report: &mut SalvageReport,
) -> Result<(Vec<(String, Tree)>, bool)> {
    let mut tables = Vec::new();
    let mut wrong = Vec::new();
    let gaps = walker.tree(CATALOGUE, &mut |name, value| {
        let row = match value {
            RowValue::Bytes(value) => TreeRow::decode(value).ok(),
            RowValue::Chunks(_) | RowValue::Lost(_) => None,
        };
        match (row, str::from_utf8(name)) {
            (Some(row), Ok(name)) if (1..=TABLE_NAME_BYTES_MAX).contains(&name.len()) => {
                let tree = Tree {
                    id: row.tree,
                    root: row.root,
                };
                tables.push((name.to_owned(), tree));
            }
            _ => wrong.push(name.escape_ascii().to_string()),
        }
        Ok(())
    })?;
    let is_whole = gaps.is_empty() && wrong.is_empty();
    told(
        report,
        "catalogue",
        &gaps,
        "tables may be missing, or nameless",
    );
    for name in wrong {
        let what = format!("the row of '{name}' is none; its table may be nameless");
        report.unbounded.push(Damage {
            place: "catalogue".to_owned(),
            what,
        });
    }
    Ok((tables, is_whole))
}

/// Reports gaps in a system tree.
fn told(report: &mut SalvageReport, place: &str, gaps: &[Gap], cost: &str) {
    for gap in gaps {
        report.unbounded.push(Damage {
            place: place.to_owned(),
            what: format!("{}: {cost}", gap.why),
        });
    }
}

/// Rows of the garbage table.
#[derive(Default)]
struct GarbageRows {
    /// Trees that are being freed, or were being filled by a load.
    gone: BTreeSet<TreeId>,
    /// Pieces of writes that were put aside, by LSN and number of the write.
    pieces: BTreeMap<(Lsn, u32), BTreeMap<u16, Vec<u8>>>,
}

impl GarbageRows {
    fn read(walker: &mut Walker<'_>, report: &mut SalvageReport) -> Result<Self> {
        let mut garbage = Self::default();
        let mut lost = Vec::new();
        let gaps = walker.tree(GARBAGE, &mut |key, value| {
            let value = match value {
                RowValue::Bytes(value) => value,
                RowValue::Chunks(_) => return Ok(()),
                RowValue::Lost(why) => {
                    lost.extend(decode_aside_key(key).map(|_| why));
                    return Ok(());
                }
            };
            if let Some((lsn, number, piece)) = decode_aside_key(key) {
                // A bad piece then counts as missing, and is reported as that.
                if let Ok(bytes) = decode_piece(value) {
                    let pieces = garbage.pieces.entry((lsn, number)).or_default();
                    pieces.insert(piece, bytes.to_vec());
                }
            } else if let Ok(GarbageRow::DroppedTree(row)) = GarbageRow::decode(value) {
                garbage.gone.insert(row.tree);
            }
            Ok(())
        })?;
        let cost = "writes that were put aside may be missing";
        told(report, "garbage table", &gaps, cost);
        for why in lost {
            let what = format!("{why}: {cost}");
            let place = "garbage table".to_owned();
            report.unbounded.push(Damage { place, what });
        }
        Ok(garbage)
    }

    /// Returns the writes of which no piece is missing, oldest first.
    fn aside(self, report: &mut SalvageReport) -> Vec<Aside> {
        let mut writes = Vec::new();
        for ((lsn, number), pieces) in self.pieces {
            match join_aside_pieces(&pieces) {
                Some(bytes) => writes.push(Aside { lsn, number, bytes }),
                None => {
                    let count = pieces.len();
                    let place = format!("write {number} of the batch at {lsn}");
                    let what = format!("was put aside, and only {count} pieces of it are there");
                    report.unbounded.push(Damage { place, what });
                }
            }
        }
        writes
    }
}
