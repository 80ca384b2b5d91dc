//! A line of MONITOR, byte for byte as Redis writes it: time, database, caller, and the arguments
//! in quotation marks.
//!
//! ```text
//! +1700000000.123456 [0 127.0.0.1:50000] "set" "key" "a\nb\x00"
//! ```

use std::io::Write as _;

use pando_sync::time::Duration;

use crate::socket::Address;

/// Who has called a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Caller<'a> {
    Client(&'a Address),
    Script,
}

/// An argument of a command, as others may see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argument<'a> {
    Shown(&'a [u8]),
    /// It may be a secret.
    Secret,
    /// It has this many bytes, which were never in memory together.
    Long(u64),
}

/// Appends the beginning of a line, at `time` after the beginning of 1970.
pub(super) fn begin(out: &mut Vec<u8>, time: Duration, database: usize, caller: Caller<'_>) {
    let (seconds, micros) = (time.as_secs(), time.subsec_micros());
    // Writing to a vector does not fail.
    let _ = write!(out, "+{seconds}.{micros:06} [{database} ");
    let _ = match caller {
        Caller::Script => write!(out, "lua]"),
        Caller::Client(Address::Unix(path)) => write!(out, "unix:{path}]"),
        Caller::Client(address) => write!(out, "{address}]"),
    };
}

/// Appends an argument: at most some `bytes_max` bytes of it, and how many more there were.
pub(super) fn append(out: &mut Vec<u8>, argument: Argument<'_>, bytes_max: usize) {
    let (bytes, mut more) = match argument {
        Argument::Secret => (&b"(redacted)"[..], 0),
        Argument::Long(bytes) => (&b""[..], bytes),
        Argument::Shown(bytes) => (bytes, 0),
    };
    out.extend_from_slice(b" \"");
    let end = out.len() + bytes_max;
    for (shown, byte) in bytes.iter().enumerate() {
        if out.len() >= end {
            more = (bytes.len() - shown) as u64;
            break;
        }
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x20..=0x7e => out.push(*byte),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    if more > 0 {
        // The words of the slow log.
        let _ = write!(out, "... ({more} more bytes)");
    }
    out.push(b'"');
}

/// Appends the end of a line.
pub(super) fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(caller: Caller<'_>, arguments: &[Argument<'_>]) -> String {
        let mut out = Vec::new();
        begin(&mut out, Duration::new(17, 1_234_000), 3, caller);
        arguments.iter().for_each(|of| append(&mut out, *of, 1000));
        end(&mut out);
        String::from_utf8(out).expect("what is no ASCII is escaped")
    }

    #[test]
    fn a_line_has_no_byte_that_a_terminal_would_obey() {
        let all: Vec<u8> = (0..=255).collect();
        let shown = line(Caller::Script, &[Argument::Shown(&all)]);
        let text = shown.strip_prefix("+17.001234 [3 lua] \"").unwrap();
        let text = text.strip_suffix("\"\r\n").unwrap();
        assert!(text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)));
        assert!(text.starts_with("\\x00\\x01"), "{text}");
        assert!(
            text.contains("\\x06\\a\\b\\t\\n\\x0b\\x0c\\r\\x0e"),
            "{text}"
        );
        assert!(
            text.contains(" !\\\"#") && text.contains("[\\\\]"),
            "{text}"
        );
        assert!(
            text.contains("}~\\x7f\\x80") && text.ends_with("\\xff"),
            "{text}"
        );
    }

    #[test]
    fn callers_are_named_as_redis_names_them() {
        let get = [Argument::Shown(b"get"), Argument::Secret];
        let tcp = Address::Tcp("[::1]:6000".parse().unwrap());
        let shown = line(Caller::Client(&tcp), &get);
        assert_eq!(
            shown,
            "+17.001234 [3 [::1]:6000] \"get\" \"(redacted)\"\r\n"
        );
        let unix = Address::Unix("/run/pando".into());
        let shown = line(Caller::Client(&unix), &get[..1]);
        assert_eq!(shown, "+17.001234 [3 unix:/run/pando] \"get\"\r\n");
    }

    #[test]
    fn a_long_argument_is_cut() {
        let long = vec![b'x'; 1007];
        let shown = line(Caller::Script, &[Argument::Shown(&long)]);
        assert!(shown.ends_with("xx... (7 more bytes)\"\r\n"));
        let whole = line(Caller::Script, &[Argument::Shown(&long[7..])]);
        assert!(whole.ends_with("xx\"\r\n"));
        let chunks = line(Caller::Script, &[Argument::Long(1 << 30)]);
        assert!(chunks.ends_with(" \"... (1073741824 more bytes)\"\r\n"));
    }
}
