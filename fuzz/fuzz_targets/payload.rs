//! Payloads of RESTORE, with a right sum, to a whole server with a store in memory: each is refused
//! or becomes a value, which is dumped, restored and dumped again as the same bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pando_resp::Answer;

mod server;

const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// Returns a payload of this content.
fn sealed(content: &[u8]) -> Vec<u8> {
    let mut payload = content.to_vec();
    payload.extend(12_u16.to_le_bytes());
    let sum = payload.iter().fold(0_u64, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| {
            (sum >> 1) ^ (if sum & 1 == 1 { POLYNOMIAL } else { 0 })
        })
    });
    payload.extend(sum.to_le_bytes());
    payload
}

fn dumped(key: &[u8]) -> Option<Vec<u8>> {
    match server::call(&[b"DUMP", key]) {
        Answer::Bulk(payload) => Some(payload),
        _ => None,
    }
}

fuzz_target!(|content: &[u8]| {
    let payload = sealed(content);
    let reply = server::call(&[b"RESTORE", b"key", b"0", &payload, b"REPLACE"]);
    if server::shown(&reply) != "Simple(\"OK\")" {
        return;
    }
    // Fields of a hash may have expired, all of them, too.
    let Some(first) = dumped(b"key") else {
        return;
    };
    let again = server::call(&[b"RESTORE", b"copy", b"0", &first, b"REPLACE"]);
    assert_eq!(server::shown(&again), "Simple(\"OK\")");
    // Sets and hashes have an order of their own once they are large.
    if content.len() < 1_000 {
        assert_eq!(dumped(b"copy").as_deref(), Some(&first[..]));
    }
});
