//! Texts of libraries, and payloads with the right checksum, made of bytes. The fuzz targets of
//! `fuzz/` read this file, too.

use crate::script_grammar::Grammar;

/// The CRC64 of payloads, bit by bit.
fn crc64(bytes: &[u8]) -> u64 {
    let fold = |sum: u64, byte: &u8| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| {
            (sum >> 1) ^ (0x95ac_9329_ac4b_c9b5 & 0_u64.wrapping_sub(sum & 1))
        })
    };
    bytes.iter().fold(0, fold)
}

/// Completes a payload.
pub(crate) fn sealed(mut content: Vec<u8>) -> Vec<u8> {
    content.extend_from_slice(&[10, 0]);
    let sum = crc64(&content);
    content.extend_from_slice(&sum.to_le_bytes());
    content
}

const HEADS: [&str; 8] = [
    "#!lua name=a\n",
    "#!lua name=b\n",
    "#!LUA NAME='c'\n",
    "#!lua name=\"\\x61\"\n",
    "#!lua\n",
    "#!lua name=a name=b\n",
    "#!js name=a\n",
    "#!lua name=a",
];

const REGISTRATIONS: [&str; 8] = [
    "redis.register_function('f', function(keys, argv) BODY end)",
    "redis.register_function{function_name='f', callback=function(keys, argv) BODY end, \
     flags={'no-writes'}, description='x'}",
    "redis.register_function('g', string.rep) BODY",
    "redis.register_function(BODY)",
    "for i = 1, 300 do redis.register_function('f' .. i, function() BODY end) end",
    "redis.register_function{function_name='f', callback=redis.log, description=('x'):rep(1e6)}",
    "BODY",
    "redis.log(redis.LOG_NOTICE, 'x') redis.register_function('f', function() BODY end) error({})",
];

/// Returns the text of a library.
pub(crate) fn library(bytes: &[u8]) -> Vec<u8> {
    let (choices, rest) = bytes.split_at_checked(2).unwrap_or((&[0, 0], bytes));
    if choices[0] >= 248 {
        return [b"#!", rest].concat();
    }
    let head = HEADS[usize::from(choices[0] & 63).saturating_sub(56)];
    let registration = REGISTRATIONS[usize::from(choices[1]) % REGISTRATIONS.len()];
    let body = format!(
        "do local KEYS, ARGV = {{}}, {{}} {} end",
        Grammar::script(rest)
    );
    [
        head.as_bytes(),
        registration.replace("BODY", &body).as_bytes(),
    ]
    .concat()
}

/// Appends a string in the form that `form` chooses.
fn put_string(out: &mut Vec<u8>, form: u8, text: &[u8]) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    match form % 8 {
        // In literal runs of LZF.
        0 => {
            let runs = text.chunks(32).flat_map(|run| {
                let control = u8::try_from(run.len() - 1).unwrap_or(31);
                [&[control][..], run].concat()
            });
            let packed: Vec<u8> = runs.collect();
            out.push(0xc3);
            for length in [packed.len(), text.len()] {
                out.push(0x80);
                out.extend_from_slice(&u32::try_from(length).unwrap_or(0).to_be_bytes());
            }
            out.extend_from_slice(&packed);
        }
        // A length that is no length.
        1 => {
            out.extend_from_slice(&[0x81, form, 255, 255, 255, 255, 255, 255, 255]);
            out.extend_from_slice(text);
        }
        2 => {
            out.push(0xc3);
            out.extend_from_slice(text);
        }
        3 => {
            out.push(0xc0 | form >> 4);
            out.extend_from_slice(text);
        }
        _ => {
            out.extend_from_slice(&[0x80, 0, 0]);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(text);
        }
    }
}

/// Returns a payload, of any bytes or of libraries.
pub(crate) fn payload(bytes: &[u8]) -> Vec<u8> {
    let Some((first, rest)) = bytes.split_first() else {
        return sealed(Vec::new());
    };
    if first % 4 == 0 {
        return sealed(rest.to_vec());
    }
    let mut content = Vec::new();
    for piece in rest.chunks(usize::from(*first).max(3)) {
        let [kind, form, seed @ ..] = piece else {
            break;
        };
        content.push(if kind % 16 == 0 { *kind } else { 245 });
        put_string(&mut content, *form, &library(seed));
    }
    sealed(content)
}
