//! Scripts, libraries and payloads that nobody in his right mind sends.
//!
//! `PANDO_ROUNDS` asks for more of them than a few seconds allow, `PANDO_SEED` for others. The fuzz
//! targets in `fuzz/` do the same with what a program thinks of that looks at coverage.

use pando_resp::Answer;
use pando_server::ServerOptions;
use pando_sync::time::{Duration, now};

use crate::client::{Client, show};
use crate::fixture::{Fixture, options};
use crate::hostile_payloads::{library, payload};
use crate::script_grammar::Grammar;
use crate::scripts::eval;

/// What a script sees, by name and type, in any order: it is the same whatever ran before.
const GLOBALS: &str = "
local names = {}
local function note(path, t)
  for _, name in ipairs({'redis', 'string', 'table', 'math', 'bit', 'cjson', 'cmsgpack', 'struct',
    'coroutine', 'os'}) do
    local library = _G[name]
    names[#names + 1] = name .. tostring(getmetatable(library)) .. tostring(next(library))
  end
end
note()
for _, name in ipairs({'string.find', 'string.rep', 'table.sort', 'cjson.decode', 'struct.pack',
  'cmsgpack.unpack', 'redis.call', 'math.random', 'bit.band', 'coroutine.wrap', 'os.clock'}) do
  local library, of = name:match('(%w+)%.(%w+)')
  names[#names + 1] = name .. type(_G[library][of])
end
names[#names + 1] = tostring(getmetatable(_G)) .. tostring(next(_G)) .. tostring(getmetatable(''))
names[#names + 1] = tostring(pcall(function() return a end)) .. #KEYS .. #ARGV
names[#names + 1] = ('x'):rep(3) .. ('%d'):format(7) .. cjson.encode({1, {a = 'b'}})
names[#names + 1] = table.concat({string.find('key=value', '(%w+)=(%w+)')}, ',')
names[#names + 1] = redis.sha1hex('') .. tostring(math.random() < 1)
return table.concat(names, ' ')";

/// More than any script needs that ends by itself.
const LONG_MS: u32 = 10_000;

fn number_of(variable: &str, usual: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().expect("a number is needed"),
        Err(_) => usual,
    }
}

/// Returns a server with one loop, and so with one state of Lua, and a client of it.
fn server() -> (Fixture, Client) {
    let server = Fixture::with(ServerOptions {
        threads: 1,
        ..options()
    });
    let mut client = server.client();
    limit(&mut client, 20);
    client.check(&[("RPUSH list a b c", ":3")]);
    (server, client)
}

/// Has scripts end after this time.
fn limit(client: &mut Client, ms: u32) {
    client.check(&[(&format!("CONFIG SET lua-time-limit {ms}"), "+OK")]);
}

/// Returns what a script sees, which it has the time for, however busy the machine is.
fn globals(client: &mut Client) -> String {
    limit(client, LONG_MS);
    let seen = eval(client, GLOBALS, &[], &[]);
    limit(client, 20);
    seen
}

/// Sends a command, and expects its reply within a time that is long for a machine that is busy.
fn call(client: &mut Client, arguments: &[&[u8]]) -> Answer {
    let began = now();
    let answer = client.call(arguments);
    let took = began.elapsed();
    let shown: Vec<_> = arguments
        .iter()
        .map(|argument| argument.escape_ascii())
        .collect();
    assert!(took < Duration::from_secs(20), "{took:?}: {shown:?}");
    answer
}

fn bytes(random: &mut fastrand::Rng, most: usize) -> Vec<u8> {
    (0..random.usize(..most)).map(|_| random.u8(..)).collect()
}

#[test]
fn no_script_breaks_the_server_or_the_next_script() {
    let (server, mut client) = server();
    let mut random = fastrand::Rng::with_seed(number_of("PANDO_SEED", 1));
    let before = globals(&mut client);
    assert!(before.starts_with("\"redis"), "{before}");
    for round in 0..number_of("PANDO_ROUNDS", 400) {
        let seed = bytes(&mut random, 120);
        let script = match round % 8 {
            0 => seed,
            _ => Grammar::script(&seed).into_bytes(),
        };
        let argument = bytes(&mut random, 40);
        call(&mut client, &[b"EVAL", &script, b"1", b"key", &argument]);
        let after = globals(&mut client);
        assert_eq!(after, before, "after {}", script.escape_ascii());
        if round % 64 == 0 {
            client.run("SCRIPT FLUSH");
            client.run("FLUSHALL");
            client.run("RPUSH list a b c");
        }
    }
    drop(server);
}

#[test]
fn no_library_or_payload_breaks_the_server() {
    let (server, mut client) = server();
    let mut random = fastrand::Rng::with_seed(number_of("PANDO_SEED", 1));
    for round in 0..number_of("PANDO_ROUNDS", 400) {
        let seed = bytes(&mut random, 200);
        let policy = ["APPEND", "REPLACE", "FLUSH"][random.usize(..3)];
        match round % 3 {
            0 => {
                let code = library(&seed);
                call(&mut client, &[b"FUNCTION", b"LOAD", b"REPLACE", &code]);
            }
            _ => {
                let payload = payload(&seed);
                let policy = policy.as_bytes();
                call(&mut client, &[b"FUNCTION", b"RESTORE", &payload, policy]);
            }
        }
        // What is there can be listed, called, and moved to where it comes from.
        let listed = call(&mut client, &[b"FUNCTION", b"LIST", b"WITHCODE"]);
        assert!(matches!(listed, Answer::Array(_)), "{}", show(&listed));
        call(&mut client, &[b"FCALL", b"f", b"0", b"x"]);
        let Answer::Bulk(dumped) = call(&mut client, &[b"FUNCTION", b"DUMP"]) else {
            panic!("there is no payload");
        };
        let again = call(&mut client, &[b"FUNCTION", b"RESTORE", &dumped, b"FLUSH"]);
        // Without libraries there is nothing to restore, which is fine, too.
        assert_eq!(show(&again), "+OK", "{}", dumped.escape_ascii());
        assert_eq!(
            call(&mut client, &[b"FUNCTION", b"LIST", b"WITHCODE"]),
            listed
        );
    }
    drop(server);
}

/// The libraries in which bytes are read, with bytes alone, so that more of them are read.
#[test]
fn no_bytes_break_the_libraries_of_scripts() {
    let (server, mut client) = server();
    limit(&mut client, LONG_MS);
    let mut random = fastrand::Rng::with_seed(number_of("PANDO_SEED", 1));
    let script = "
local results, text = {}, ARGV[1]
for _, f in ipairs({cjson.decode, cmsgpack.unpack, cmsgpack.unpack_one, struct.size}) do
  local ok, value = pcall(f, text)
  if ok and type(value) == 'table' then
    pcall(cjson.encode, value)
    pcall(cmsgpack.unpack, cmsgpack.pack(value))
  end
end
pcall(cmsgpack.unpack_limit, text, 3, #text / 2)
pcall(struct.unpack, text, ARGV[2])
pcall(struct.unpack, ARGV[2], text, 2)
pcall(struct.pack, text, 1, 'abc', 2, ARGV[2], -1, 1e300)
return 1";
    let letters =
        b"{}[]\":,\\u0129eE+-.truefalsn\x90\x81\xdc\xdd\xde\xdf\xc0\xcb\xdb\xffbBhHlLiIfdxcs!<> ";
    for round in 0..number_of("PANDO_ROUNDS", 400) * 4 {
        let (mut text, other) = (bytes(&mut random, 60), bytes(&mut random, 60));
        if round % 3 > 0 {
            text.iter_mut()
                .for_each(|byte| *byte = letters[usize::from(*byte) % letters.len()]);
        }
        let reply = call(
            &mut client,
            &[b"EVAL", script.as_bytes(), b"0", &text, &other],
        );
        assert_eq!(show(&reply), ":1", "{}", text.escape_ascii());
    }
    // Levels and counts that are larger than there is room for.
    for (piece, count) in [
        ("[", 200_000),
        ("{\"a\":", 1000),
        ("\u{91}", 1000),
        ("x", 100_000),
    ] {
        let text = piece.repeat(count).into_bytes();
        let reply = call(
            &mut client,
            &[b"EVAL", script.as_bytes(), b"0", &text, b"\x01\x02"],
        );
        assert!(
            matches!(reply, Answer::Integer(1) | Answer::Error(_)),
            "{}",
            show(&reply)
        );
    }
    for byte in [0x81_u8, 0x82, 0x91, 0x92, 0xdc, 0xdd, 0xde, 0xdf] {
        let text = vec![byte; 200_000];
        let reply = call(
            &mut client,
            &[b"EVAL", script.as_bytes(), b"0", &text, &text[..99]],
        );
        assert_eq!(show(&reply), ":1", "{byte}");
    }
    drop(server);
}
