//! Tests of the request parser: its errors are exact, and its results do not depend on how the
//! bytes arrive.

use proptest::prelude::*;

use super::*;

/// Returns the commands, and the error that ended them, as a server sees them when `bytes` arrive
/// in pieces that end at `cuts`.
fn run(
    bytes: &[u8],
    cuts: &[usize],
    limits: &Limits,
) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let mut parser = Parser::new();
    let mut buffer = Vec::new();
    let mut commands = Vec::new();
    let mut from = 0;
    // The bytes of the current large argument so far, and the finished large arguments with their
    // indices.
    let (mut taken, mut large) = (Vec::new(), Vec::new());
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        let cut = cut.clamp(from, bytes.len());
        buffer.extend_from_slice(&bytes[from..cut]);
        from = cut;
        loop {
            let consumed = match parser.parse(&mut buffer, limits) {
                Parsed::Command { consumed } => {
                    let arguments = parser.arguments(&buffer).from(0);
                    let mut command: Vec<_> = arguments.map(<[u8]>::to_vec).collect();
                    for (index, value) in large.drain(..) {
                        assert_eq!(
                            command[index], b"",
                            "the argument was taken from the buffer"
                        );
                        command[index] = value;
                    }
                    commands.push(command);
                    consumed
                }
                Parsed::Large {
                    at,
                    bytes,
                    index,
                    count,
                } => {
                    assert!(bytes > limits.whole_bytes_max && index < count);
                    let end = buffer.len().min(at + bytes - taken.len());
                    taken.extend(buffer.drain(at..end));
                    if taken.len() < bytes {
                        break;
                    }
                    large.push((index, std::mem::take(&mut taken)));
                    parser.large_taken();
                    continue;
                }
                Parsed::Nothing { consumed } => consumed,
                Parsed::Incomplete { needed } => {
                    assert!(needed > 0);
                    break;
                }
                Parsed::Broken(error) => return (commands, Some(error)),
            };
            assert!(consumed > 0 && consumed <= buffer.len());
            buffer.drain(..consumed);
            parser.clear();
        }
    }
    (commands, None)
}

fn error_of(bytes: &[u8], limits: &Limits) -> Option<String> {
    run(bytes, &[], limits).1.map(|error| error.to_string())
}

#[test]
fn broken_requests_have_the_errors_that_clients_know() {
    let limits = Limits::default();
    let cases: &[(&[u8], &str)] = &[
        (b"*abc\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n\r\n", "expected '$', got ' '"),
        (b"*1\r\n\x07\r\n", "expected '$', got '?'"),
        (b"*1\r\n\xFF\r\n", "expected '$', got '\u{10FFFF}'"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$9223372036854775807\r\n", "invalid bulk length"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"get \"a\r\n", "unbalanced quotes in request"),
    ];
    for (bytes, text) in cases {
        let expected = format!("Protocol error: {text}");
        assert_eq!(error_of(bytes, &limits), Some(expected));
    }
    let long = vec![b'1'; LINE_BYTES_MAX + 1];
    let with = |prefix: &[u8]| [prefix, &long].concat();
    let text = |what: &str| Some(format!("Protocol error: {what}"));
    assert_eq!(
        error_of(&with(b"*"), &limits),
        text("too big mbulk count string")
    );
    assert_eq!(
        error_of(&with(b"*1\r\n$"), &limits),
        text("too big bulk count string")
    );
    assert_eq!(error_of(&long, &limits), text("too big inline request"));
}

#[test]
fn an_unknown_peer_has_smaller_limits() {
    let limits = Limits {
        unauthenticated: true,
        ..Limits::default()
    };
    let text = |what: &str| Some(format!("Protocol error: {what}"));
    assert_eq!(
        error_of(b"*11\r\n", &limits),
        text("unauthenticated multibulk length")
    );
    assert_eq!(
        error_of(b"*1\r\n$16385\r\n", &limits),
        text("unauthenticated bulk length")
    );
    assert_eq!(error_of(b"*10\r\n$16384\r\n", &limits), None);
}

#[test]
fn a_request_beyond_the_limit_is_refused_before_its_bytes_arrive() {
    let limits = Limits {
        request_bytes_max: 1000,
        ..Limits::default()
    };
    let expected = Some(ProtocolError::RequestTooBig);
    assert_eq!(
        run(b"*2\r\n$3\r\nget\r\n$990\r\n", &[], &limits).1,
        expected
    );
    let many = b"$400\r\n"
        .iter()
        .copied()
        .chain([b'x'; 402])
        .collect::<Vec<_>>();
    let request = [b"*3\r\n".as_slice(), &many, &many, &many].concat();
    assert_eq!(run(&request, &[], &limits).1, expected);
}

#[test]
fn empty_arrays_and_lines_are_nothing() {
    let (commands, error) = run(
        b"\r\n*0\r\n*-1\r\n\n  \r\nping\r\n",
        &[],
        &Limits::default(),
    );
    assert_eq!(commands, [vec![b"ping".to_vec()]]);
    assert_eq!(error, None);
}

#[test]
fn a_declared_length_allocates_nothing() {
    let mut parser = Parser::new();
    let mut bytes = b"*1048576\r\n$536870912\r\nabc".to_vec();
    let parsed = parser.parse(&mut bytes, &Limits::default());
    assert_eq!(
        parsed,
        Parsed::Incomplete {
            needed: 536_870_911
        }
    );
    assert_eq!(parser.spans.capacity(), 0);
}

#[test]
fn a_large_argument_stays_large_when_the_limits_grow() {
    let mut parser = Parser::new();
    let small = Limits {
        whole_bytes_max: 4,
        ..Limits::default()
    };
    let mut bytes = b"*2\r\n$3\r\nget\r\n$6\r\nab".to_vec();
    let large = Parsed::Large {
        at: 17,
        bytes: 6,
        index: 1,
        count: 2,
    };
    assert_eq!(parser.parse(&mut bytes, &small), large);
    bytes.truncate(17);
    bytes.extend_from_slice(b"cdef\r\n");
    assert_eq!(parser.parse(&mut bytes, &Limits::default()), large);
    bytes.drain(17..21);
    parser.large_taken();
    let parsed = parser.parse(&mut bytes, &Limits::default());
    assert_eq!(parsed, Parsed::Command { consumed: 19 });
    assert_eq!(parser.arguments(&bytes).at(1), b"");
}

fn encoded(command: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// What is parsed in one pass means what is parsed argument by argument, with any limits: whole
/// commands, cut ones, and some in which a byte is another one.
#[test]
fn short_commands_mean_what_all_commands_mean() {
    let mut random = fastrand::Rng::with_seed(3);
    let (mut short, mut refused) = (0, 0);
    for _ in 0..100_000 {
        let command: Vec<_> = (0..random.usize(1..4))
            .map(|_| vec![b'x'; random.usize(..8)])
            .collect();
        let mut bytes = encoded(&command);
        if random.bool() {
            let at = random.usize(..bytes.len());
            bytes[at] = b"$*09-\r\nx"[random.usize(..8)];
        }
        bytes.truncate(match random.bool() {
            true => random.usize(1..=bytes.len()),
            false => bytes.len(),
        });
        let some = |random: &mut fastrand::Rng, most: usize| match random.bool() {
            true => random.usize(1..most),
            false => 1 << 20,
        };
        let limits = Limits {
            arguments_max: some(&mut random, 4),
            bulk_bytes_max: some(&mut random, 8),
            whole_bytes_max: some(&mut random, 8),
            kept_bytes_max: usize::MAX,
            request_bytes_max: some(&mut random, 40),
            unauthenticated: random.usize(..8) == 0,
        };
        if bytes[0] != b'*' {
            continue;
        }
        let (mut one, mut other) = (Parser::new(), Parser::new());
        short += usize::from(Parser::new().parse_short(&bytes, &limits).is_some());
        let (parsed, expected) = (one.peek(&bytes, &limits), other.parse_any(&bytes, &limits));
        assert_eq!(parsed, expected, "{bytes:?} {limits:?}");
        assert_eq!(one.spans(), other.spans(), "{bytes:?} {limits:?}");
        refused += usize::from(matches!(parsed, Parsed::Broken(_)));
    }
    assert!(short > 10_000 && refused > 10_000, "{short} {refused}");
}

#[test]
fn short_lines_mean_what_all_lines_mean() {
    let bytes = b"09+- \r\n1a";
    // All lines of up to six of these bytes.
    for number in 0..bytes.len().pow(6) {
        let mut line = vec![b'$'];
        line.extend((0..6).map(|place| bytes[number / bytes.len().pow(place) % bytes.len()]));
        let Some((value, length)) = short_line(&line) else {
            continue;
        };
        let mut parser = Parser::default();
        let Step::Done(whole) = parser.line(&line, ProtocolError::BulkLine) else {
            panic!("{line:?} is no line");
        };
        assert_eq!(
            parse_integer(&whole.of(&line)[1..]),
            Some(value),
            "{line:?}"
        );
        assert_eq!(parser.position, length, "{line:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn commands_survive_any_split(
        commands in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..5), 1..6),
    ) {
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encoded(command)).collect();
        let limits = Limits::default();
        for cut in 0..=bytes.len() {
            let (got, error) = run(&bytes, &[cut], &limits);
            prop_assert_eq!(&got, &commands);
            prop_assert_eq!(error, None);
        }
        let every: Vec<usize> = (0..bytes.len()).collect();
        prop_assert_eq!(&run(&bytes, &every, &limits).0, &commands);
        // The result is the same if some arguments do not stay in the buffer.
        let limits = Limits { whole_bytes_max: 7, ..limits };
        for cut in 0..=bytes.len() {
            prop_assert_eq!(&run(&bytes, &[cut], &limits).0, &commands);
        }
        prop_assert_eq!(&run(&bytes, &every, &limits).0, &commands);
    }

    #[test]
    fn hostile_bytes_never_panic_and_mean_the_same_however_they_arrive(
        pieces in prop::collection::vec(prop_oneof![
            Just(b"*".to_vec()), Just(b"$".to_vec()), Just(b"\r\n".to_vec()), Just(b"\r".to_vec()),
            Just(b"-1".to_vec()), Just(b"3".to_vec()), Just(b"\"".to_vec()), Just(b"\\x4".to_vec()),
            Just(b"*2\r\n$3\r\nget\r\n$1\r\na\r\n".to_vec()), Just(b"9999999999".to_vec()),
            prop::collection::vec(any::<u8>(), 0..8),
        ], 0..24),
        cuts in prop::collection::vec(0usize..200, 0..6),
    ) {
        let bytes = pieces.concat();
        let mut cuts = cuts;
        cuts.sort_unstable();
        let limits = Limits::default();
        let whole = run(&bytes, &[], &limits);
        prop_assert_eq!(run(&bytes, &cuts, &limits), whole);
        let every: Vec<usize> = (0..bytes.len()).collect();
        let _ = run(&bytes, &every, &limits);
        let limits = Limits { whole_bytes_max: 2, ..limits };
        let whole = run(&bytes, &[], &limits);
        prop_assert_eq!(run(&bytes, &cuts, &limits), whole);
    }
}

/// Arguments behind the bytes that are kept are left out, in whatever pieces the command arrives,
/// and what comes behind it is found.
#[test]
fn arguments_behind_what_is_kept_are_left_out() {
    let limits = Limits {
        kept_bytes_max: 100,
        request_bytes_max: 1000,
        ..Limits::default()
    };
    let mut bytes = b"*2001\r\n$3\r\nset\r\n".to_vec();
    (0..1000).for_each(|_| bytes.extend_from_slice(b"$5\r\nhello\r\n$0\r\n\r\n"));
    bytes.extend_from_slice(b"*1\r\n$4\r\nping\r\n");
    for piece in [1, 7, 64, 500] {
        let (mut parser, mut buffer, mut found) = (Parser::new(), Vec::new(), Vec::new());
        for part in bytes.chunks(piece) {
            buffer.extend_from_slice(part);
            loop {
                let parsed = parser.parse(&mut buffer, &limits);
                let skips = parser.skips();
                let skipped = parser.skip(&mut buffer, 0);
                match parsed {
                    Parsed::Command { consumed } => {
                        let consumed = consumed - skipped;
                        let name = parser.arguments(&buffer).at(0).to_vec();
                        found.push((name, skips));
                        buffer.drain(..consumed);
                        parser.clear();
                    }
                    Parsed::Incomplete { .. } => break,
                    other => panic!("{other:?}"),
                }
                if buffer.is_empty() {
                    break;
                }
            }
            assert!(buffer.len() < 800, "{}", buffer.len());
        }
        let expected = [(b"set".to_vec(), true), (b"ping".to_vec(), false)];
        assert_eq!(found, expected, "{piece}");
    }
}
