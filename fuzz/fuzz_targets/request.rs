//! Requests: any bytes, cut into any pieces, give the same commands and never a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pando_resp::{Limits, Parsed, Parser};

/// Returns the commands in `bytes` when they arrive in pieces of `step` bytes, and whether an error
/// ended them.
fn commands(bytes: &[u8], step: usize, limits: &Limits) -> (Vec<Vec<Vec<u8>>>, bool) {
    let (mut parser, mut taken) = (Parser::new(), 0);
    let (mut buffer, mut arrived, mut found) = (Vec::new(), 0, Vec::new());
    loop {
        match parser.parse(&mut buffer, limits) {
            Parsed::Command { consumed } => {
                let arguments = parser.arguments(&buffer);
                found.push(arguments.from(0).map(<[u8]>::to_vec).collect());
                parser.clear();
                buffer.drain(..consumed);
            }
            Parsed::Large { at, bytes: length, .. } if at < buffer.len() && taken < length => {
                let end = buffer.len().min(at + length - taken);
                taken += buffer.drain(at..end).count();
            }
            Parsed::Large { bytes: length, .. } if taken == length => {
                taken = 0;
                parser.large_taken();
            }
            Parsed::Incomplete { .. } | Parsed::Large { .. } => {
                if arrived == bytes.len() {
                    return (found, false);
                }
                let next = (arrived + step).min(bytes.len());
                buffer.extend_from_slice(&bytes[arrived..next]);
                arrived = next;
            }
            Parsed::Nothing { consumed } => {
                parser.clear();
                buffer.drain(..consumed);
            }
            Parsed::Broken(_) => return (found, true),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    for whole_bytes_max in [usize::MAX, 4] {
        let limits = Limits {
            whole_bytes_max,
            ..Limits::default()
        };
        let whole = commands(bytes, bytes.len().max(1), &limits);
        for step in [1, 2, 7] {
            assert_eq!(commands(bytes, step, &limits), whole);
        }
    }
});
