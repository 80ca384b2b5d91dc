//! Many tables: each takes little memory, all together have a share of it, and checkpoints write
//! only the counts that changed.

use pandodb::device::{AnyDevice, MemoryDevice};
use pandodb::{Db, Error, VerifyReport};

fn open(device: &MemoryDevice, memory: u64) -> Result<Db, Error> {
    let options = Db::builder().max_memory(memory);
    Db::open_device(options, AnyDevice::from(device.clone()))
}

fn name(number: usize) -> String {
    format!("table-{number:05}")
}

/// Creates tables, each with its number as an entry, until there is no memory for more. Returns
/// their number.
fn fill(db: &Db) -> usize {
    for number in 0.. {
        match db.table(&name(number)) {
            Ok(table) => table.put(&number.to_be_bytes(), b"v").unwrap(),
            Err(Error::Full { what }) => {
                assert!(what.contains("max_memory leaves for tables"), "{what}");
                return number;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("memory ends")
}

#[test]
fn tables_fill_their_share_of_the_memory_and_no_more() {
    let device = MemoryDevice::new(1 << 30);
    let db = open(&device, 8 << 20).unwrap();
    let count = fill(&db);
    let share = db.memory().tables;
    assert_eq!(share.budget_bytes, (8 << 20) / 64);
    assert!(share.used_bytes <= share.budget_bytes);
    let of_one = share.used_bytes / count as u64;
    assert!((64..2048).contains(&of_one), "{of_one} bytes a table");
    assert!(share.used_bytes + of_one > share.budget_bytes);
    // Dropping one table makes room for one table, and no more.
    db.drop_table(&name(3)).unwrap();
    db.table("another-one").unwrap();
    assert!(matches!(db.table("too-many"), Err(Error::Full { .. })));
    assert_eq!(db.tables().len(), count);
    db.close().unwrap();

    let error = open(&device, 4 << 20).unwrap_err();
    let Error::InvalidOption { option, what } = error else {
        panic!("{error}");
    };
    assert_eq!(option, "max_memory");
    // The error says how much memory would be enough, and that is indeed enough.
    let enough: u64 = what
        .strip_suffix(" is enough")
        .and_then(|what| what.rsplit_once(' '))
        .and_then(|(_, bytes)| bytes.parse().ok())
        .unwrap_or_else(|| panic!("{what}"));
    let db = open(&device, enough).unwrap();
    assert_eq!(db.tables().len(), count);
    for number in (0..count).filter(|number| *number != 3) {
        let table = db.existing_table(&name(number)).unwrap();
        assert_eq!(table.len(), 1);
        assert!(table.get(&number.to_be_bytes()).unwrap().is_some());
    }
    db.close().unwrap();
}

#[test]
fn counts_are_kept_of_tables_that_change_in_some_checkpoints_only() {
    const TABLES: usize = 40;
    let device = MemoryDevice::new(1 << 30);
    let mut expected = [0_u64; TABLES];
    let mut key = 0_u64;
    for life in 0..3 {
        let db = open(&device, 8 << 20).unwrap();
        let tables: Vec<_> = (0..TABLES)
            .map(|number| db.table(&name(number)).unwrap())
            .collect();
        for (table, count) in tables.iter().zip(&expected) {
            assert_eq!(table.len(), *count, "{} in life {life}", table.name());
        }
        for round in 0..30 {
            for (number, table) in tables.iter().enumerate() {
                if (round + number) % (number + 1) != 0 {
                    continue;
                }
                for _ in 0..3 {
                    table.put(&key.to_be_bytes(), b"v").unwrap();
                    key += 1;
                }
                table.delete(&(key - 1).to_be_bytes()).unwrap();
                expected[number] += 2;
            }
            if round % 10 == 9 {
                db.clear_tables(&[&tables[round]]).unwrap();
                expected[round] = 0;
            }
            if round % 3 == 0 {
                db.checkpoint().unwrap();
            }
        }
        db.close().unwrap();
        let report = VerifyReport::of_device(&AnyDevice::from(device.clone())).unwrap();
        assert!(report.damages.is_empty(), "{:?}", report.damages);
    }
}
