//! FUNCTION LOAD and FUNCTION RESTORE, with texts and payloads that nobody made, but whose
//! checksums are right: what is there afterwards can be called, dumped and restored.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/pando-server/tests/it/hostile_payloads.rs"]
mod hostile_payloads;
#[path = "../../crates/pando-server/tests/it/script_grammar.rs"]
mod script_grammar;
mod server;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    if first % 2 == 0 {
        server::call(&[
            b"FUNCTION",
            b"LOAD",
            b"REPLACE",
            &hostile_payloads::library(rest),
        ]);
    } else {
        let payload = hostile_payloads::payload(rest);
        server::call(&[b"FUNCTION", b"RESTORE", &payload, b"REPLACE"]);
    }
    server::call(&[b"FCALL", b"f", b"0", b"x"]);
    if let pando_resp::Answer::Bulk(dumped) = server::call(&[b"FUNCTION", b"DUMP"]) {
        let restored = server::call(&[b"FUNCTION", b"RESTORE", &dumped, b"FLUSH"]);
        assert_eq!(server::shown(&restored), "Simple(\"OK\")");
    }
    server::call(&[b"FUNCTION", b"FLUSH"]);
});
