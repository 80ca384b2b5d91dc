//! People by city: an index that always has one entry for each person, whichever thread moves whom.
//!
//! `cargo run --example secondary_index`

#![expect(clippy::print_stdout, reason = "an example shows what it has found")]

use std::thread;

use pandodb::{Db, Result, Table};

fn entry(city: &[u8], person: &[u8]) -> Vec<u8> {
    [city, b"/", person].concat()
}

fn move_to(db: &Db, people: &Table, by_city: &Table, person: &[u8], city: &[u8]) -> Result<()> {
    db.transact(|transaction| {
        if let Some(old) = transaction.get(people, person)? {
            transaction.delete(by_city, &entry(&old, person))?;
        }
        transaction.put(people, person, city)?;
        transaction.put(by_city, &entry(city, person), b"")
    })
}

fn main() -> Result<()> {
    let db = Db::builder().open_in_memory()?;
    let (people, by_city) = (db.table("people")?, db.table("people by city")?);
    let cities: [&[u8]; 3] = [b"Lima", b"Oslo", b"Rome"];
    thread::scope(|scope| {
        for mover in 0..16_u8 {
            let (db, people, by_city) = (&db, &people, &by_city);
            scope.spawn(move || {
                for round in 0..30_u8 {
                    let person = format!("person {}", (mover + round) % 50);
                    let city = cities[usize::from(mover ^ round) % cities.len()];
                    if let Err(error) = move_to(db, people, by_city, person.as_bytes(), city) {
                        panic!("{person}: {error}");
                    }
                }
            });
        }
    });
    // Both tables as of one moment.
    let snapshot = db.snapshot()?;
    for city in cities {
        let count = snapshot.prefix(&by_city, &entry(city, b"")).count();
        println!("{count} in {}", city.escape_ascii());
    }
    assert_eq!(
        snapshot.iter(&by_city).count(),
        snapshot.iter(&people).count(),
        "one entry for each person"
    );
    Ok(())
}
