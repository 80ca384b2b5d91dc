//! A server with a store in memory, and one client of it, for all inputs of a target.

use std::cell::RefCell;
use std::net::SocketAddr;

use pando_resp::{Answer, Client, ClientOptions};
use pando_server::{Server, ServerOptions};
use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::Db;

/// A script ends after 20 ms. What it waits for, and a machine that is busy, take longer.
const TIME_MAX: Duration = Duration::from_secs(10);

thread_local! {
    static SERVER: RefCell<Option<(Client, Db)>> = const { RefCell::new(None) };
}

/// Starts the server. It ends with the process; a panic of any of its threads ends that.
fn start() -> (Client, Db) {
    let options = ServerOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        threads: 1,
        ..ServerOptions::default()
    };
    let server = Server::bind(options).expect("a port is free");
    let address = server.addresses()[0];
    let handle = server.handle();
    let db = Db::builder().max_memory(32 << 20).open_in_memory();
    let db = db.expect("a store in memory opens");
    let store = db.clone();
    thread::spawn(move || server.serve(|| Ok(store)).expect("it serves"));
    while !handle.is_serving() {
        thread::yield_now();
    }
    let options = ClientOptions {
        timeout: 2 * TIME_MAX,
        reply_bytes_max: 1 << 30,
    };
    let mut client = Client::connect(&[address], options).expect("it accepts");
    ask(&mut client, &[b"CONFIG", b"SET", b"lua-time-limit", b"20"]);
    (client, db)
}

fn ask(client: &mut Client, arguments: &[&[u8]]) -> Answer {
    client.call(arguments).expect("the server answers")
}

/// Returns the reply to a command, which comes in time.
pub fn call(arguments: &[&[u8]]) -> Answer {
    SERVER.with_borrow_mut(|server| {
        let (client, _) = server.get_or_insert_with(start);
        let began = now();
        let answer = ask(client, arguments);
        assert!(began.elapsed() < TIME_MAX, "it took {:?}", began.elapsed());
        answer
    })
}

/// Returns the store of the server.
#[allow(dead_code, reason = "not all targets look at it")]
pub fn store() -> Db {
    SERVER.with_borrow_mut(|server| server.get_or_insert_with(start).1.clone())
}

/// Returns a reply as text.
#[allow(dead_code, reason = "not all targets look at it")]
pub fn shown(answer: &Answer) -> String {
    match answer {
        Answer::Simple(text) => format!("Simple({text:?})"),
        Answer::Bulk(bytes) => format!("Bulk(b\"{}\")", bytes.escape_ascii()),
        Answer::Array(items) => {
            let items: Vec<_> = items.iter().map(shown).collect();
            format!("Array([{}])", items.join(", "))
        }
        other => format!("{other:?}"),
    }
}
