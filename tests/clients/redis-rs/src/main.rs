//! Runs the unmodified redis crate against the server whose URL is the first argument. The first
//! wrong answer ends it with an error.

#![forbid(unsafe_code)]

use std::error::Error;

use redis::{Commands, Connection, RedisResult};

fn strings(connection: &mut Connection) -> Result<(), Box<dyn Error>> {
    let _: () = connection.set("name", "pando")?;
    let name: String = connection.get("name")?;
    assert_eq!(name, "pando");
    let none: Option<String> = connection.get("none")?;
    assert_eq!(none, None);
    let _: () = connection.set("n", 41)?;
    let n: i64 = connection.incr("n", 1)?;
    assert_eq!(n, 42);
    let _: () = connection.mset(&[("a", "1"), ("b", "2")])?;
    let both: Vec<Option<String>> = connection.mget(&["a", "none", "b"])?;
    assert_eq!(both, [Some("1".into()), None, Some("2".into())]);
    let wrong: RedisResult<i64> = connection.incr("name", 1);
    assert!(wrong.is_err_and(|error| error.to_string().contains("not an integer")));
    Ok(())
}

fn expiry(connection: &mut Connection) -> Result<(), Box<dyn Error>> {
    let _: () = connection.set_ex("soon", "gone", 100)?;
    let left: i64 = connection.ttl("soon")?;
    assert!((1..=100).contains(&left), "{left}");
    let kept: bool = connection.persist("soon")?;
    assert!(kept);
    Ok(())
}

fn transactions(connection: &mut Connection) -> Result<(), Box<dyn Error>> {
    let (old, new): (i64, i64) = redis::pipe()
        .atomic()
        .set("x", 1)
        .ignore()
        .get("x")
        .incr("x", 9)
        .query(connection)?;
    assert_eq!((old, new), (1, 10));
    let (value,): (i64,) = redis::transaction(connection, &["x"], |connection, pipe| {
        let x: i64 = connection.get("x")?;
        pipe.set("x", x * 2).ignore().get("x").query(connection)
    })?;
    assert_eq!(value, 20);
    Ok(())
}

fn pipeline_and_scan(connection: &mut Connection) -> Result<(), Box<dyn Error>> {
    let mut pipe = redis::pipe();
    for number in 0..1000 {
        pipe.set(format!("scan:{number}"), number).ignore();
    }
    let _: () = pipe.query(connection)?;
    let mut found = Vec::new();
    for key in connection.scan_match::<_, String>("scan:*")? {
        found.push(key?);
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 1000);
    let removed: i64 = connection.del(found)?;
    assert_eq!(removed, 1000);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("usage: redis-rs-client URL")?;
    for protocol in ["resp2", "resp3"] {
        let client = redis::Client::open(format!("{url}/?protocol={protocol}"))?;
        let mut connection = client.get_connection()?;
        let _: () = redis::cmd("FLUSHALL").query(&mut connection)?;
        strings(&mut connection)?;
        expiry(&mut connection)?;
        transactions(&mut connection)?;
        pipeline_and_scan(&mut connection)?;
    }
    Ok(())
}
