//! Scripts, by a grammar or as they are, in the sandbox of a whole server with a store in memory:
//! each has a reply in time, no thread of the server panics, and the next script runs as ever.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/pando-server/tests/it/script_grammar.rs"]
mod script_grammar;
mod server;

const NEXT: &[u8] = b"return {type(redis.call), ('x'):rep(3), cjson.encode({1}), #KEYS, #ARGV}";

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let script = match first % 8 {
        0 => rest.to_vec(),
        _ => script_grammar::Grammar::script(rest).into_bytes(),
    };
    server::call(&[b"EVAL", &script, b"1", b"key", rest]);
    let next = server::call(&[b"EVAL", NEXT, b"0"]);
    let expected =
        "Array([Bulk(b\"function\"), Bulk(b\"xxx\"), Bulk(b\"[1]\"), Integer(0), Integer(0)])";
    assert_eq!(server::shown(&next), expected);
});
