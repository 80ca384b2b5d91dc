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
    static CLIENT: RefCell<Option<Client>> = const { RefCell::new(None) };
}

/// Starts the server. It ends with the process; a panic of any of its threads ends that.
fn start() -> Client {
    let options = ServerOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        threads: 1,
        ..ServerOptions::default()
    };
    let server = Server::bind(options).expect("a port is free");
    let address = server.addresses()[0];
    let handle = server.handle();
    thread::spawn(move || {
        server
            .serve(|| Db::builder().max_memory(32 << 20).open_in_memory())
            .expect("it serves");
    });
    while !handle.is_serving() {
        thread::yield_now();
    }
    let options = ClientOptions {
        timeout: 2 * TIME_MAX,
        reply_bytes_max: 1 << 30,
    };
    let mut client = Client::connect(&[address], options).expect("it accepts");
    ask(&mut client, &[b"CONFIG", b"SET", b"lua-time-limit", b"20"]);
    client
}

fn ask(client: &mut Client, arguments: &[&[u8]]) -> Answer {
    client.call(arguments).expect("the server answers")
}

/// Returns the reply to a command, which comes in time.
pub fn call(arguments: &[&[u8]]) -> Answer {
    CLIENT.with_borrow_mut(|client| {
        let client = client.get_or_insert_with(start);
        let began = now();
        let answer = ask(client, arguments);
        assert!(began.elapsed() < TIME_MAX, "it took {:?}", began.elapsed());
        answer
    })
}

/// Returns a reply as text.
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
