//! Keys that a transaction of PANDO BEGIN replaces while others give them elements, or pieces, of
//! their own. At the end of each test the fixture looks for rows that no key has.

use crate::client::Client;
use crate::fixture::Fixture;
use crate::trees::many;

/// Gives `key` rows of its own, in one of three ways.
fn make_large(client: &mut Client, key: &str, how: &str) {
    match how {
        "list" => {
            let elements = (0..2000).map(|n| format!("element-{n}-{}", "y".repeat(40)));
            assert_eq!(many(client, &["RPUSH", key], elements), ":2000");
        }
        "stream" => {
            client.check(&[(&format!("XADD {key} 1-1 field value"), "\"1-1\"")]);
        }
        "pieces" => {
            let long = "z".repeat(300);
            client.check(&[(&format!("SETRANGE {key} 40000 {long}"), ":40300")]);
        }
        other => panic!("{other}"),
    }
}

/// The moment that a transaction reads may be long over when it commits: that no key of its
/// database had rows of its own then says nothing.
#[test]
fn what_becomes_large_beside_a_transaction_that_overwrites_it_is_a_conflict() {
    for how in ["list", "stream", "pieces"] {
        for level in ["SERIALIZABLE", "SNAPSHOT"] {
            for write in ["SET k x", "MSET j y k x"] {
                let server = Fixture::new();
                let (mut client, mut other) = (server.client(), server.client());
                client.check(&[(&format!("PANDO BEGIN {level}"), "+OK"), (write, "+OK")]);
                make_large(&mut other, "k", how);
                client.check(&[
                    ("PANDO COMMIT", "-CONFLICT key k"),
                    ("PANDO ROLLBACK", "+OK"),
                    ("EXISTS j k", ":1"),
                    (write, "+OK"),
                    ("GET k", "\"x\""),
                ]);
            }
        }
    }
}
