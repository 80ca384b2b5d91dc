//! Tests of the libraries that scripts have, and of how many values and which bytes they handle.

use std::io::Read as _;

use pando_resp::Answer;

use crate::client::{encode, show};
use crate::fixture::Fixture;
use crate::scripts::{check, check_errors, eval, spacious};

#[test]
fn scripts_have_json_and_message_pack() {
    let server = Fixture::new();
    let mut client = server.client();
    check(
        &mut client,
        &[
            (
                "return cjson.encode({1, 1.5, 1/3, 1e14, 'a/b\\n\"', true, cjson.null})",
                "\"[1,1.5,0.33333333333333,1e+14,\"a\\/b\\n\\\"\",true,null]\"",
            ),
            ("return cjson.encode({})", "\"{}\""),
            ("return cjson.encode({[2] = 1})", "\"[null,1]\""),
            (
                "return cjson.encode({a = {b = 1}})",
                "\"{\"a\":{\"b\":1}}\"",
            ),
            ("return cjson.decode('[1, {\"a\": [2]}]')[2].a[1]", ":2"),
            (
                "return cjson.decode('\"\\\\u00e9\\\\ud83d\\\\ude00\"')",
                "\"é😀\"",
            ),
            (
                "return tostring(cjson.decode('null') == cjson.null)",
                "\"true\"",
            ),
            ("return cjson.encode_max_depth()", ":1000"),
            (
                "return redis.sha1hex(cmsgpack.pack({1, 'a', {b = -1}}, 1.5, nil, 300))",
                "\"eabc1ce6c902a2885a107c9d362a9c0e2326998f\"",
            ),
            (
                "local a, b = cmsgpack.unpack(cmsgpack.pack({1, 'a'}, 70000)) return {a, b}",
                "[[:1 \"a\"] :70000]",
            ),
            ("return {cmsgpack.unpack_one('\\1\\2')}", "[:1 :1]"),
            ("return {cmsgpack.unpack_limit('\\1\\2', 5)}", "[:-1 :1 :2]"),
            // No value is asked for: the offset is where it was.
            ("return {cmsgpack.unpack_limit('\\1\\2', 0, 1)}", "[:1]"),
            ("return {cmsgpack.unpack_limit('\\1\\2', 0)}", "[:1 :2]"),
            ("return {cmsgpack.unpack_one('\\1\\2', '0x1')}", "[:-1 :2]"),
            (
                "redis.setresp(3.5) redis.setresp('0x2') redis.set_repl('x') redis.set_repl(3.9) \
                 return 1",
                ":1",
            ),
            // Numbers of C, and a zero ends a text of C.
            ("return cjson.decode('0x1.8p3')", ":12"),
            ("return tostring(cjson.decode('[nan(1)]')[1])", "\"nan\""),
            ("return cjson.decode('10\\0}')", ":10"),
            (
                "return bit.tohex(1, 9) .. bit.tohex(-1, -200) .. bit.tohex(1, '2')",
                "\"00000001FFFFFFFF01\"",
            ),
        ],
    );
    // A small table that is a large text; arrays that announce more than there is; deep ones.
    let dag = "local t = {1} for _ = 1, 100 do t = {t, t} end return cjson.encode(t)";
    let reply = eval(&mut client, dag, &[], &[]);
    assert!(reply.starts_with("-ERR not enough memory"), "{reply}");
    for script in [
        "return cmsgpack.unpack('\\221\\255\\255\\255\\255')",
        "return cmsgpack.unpack(('\\145'):rep(1000000))",
        "return cjson.decode(('['):rep(1000000))",
    ] {
        let reply = eval(&mut client, script, &[], &[]);
        assert!(reply.starts_with("-ERR "), "{script}: {reply}");
    }
    assert_eq!(eval(&mut client, "return 1", &[], &[]), ":1");
}

#[test]
fn scripts_choose_how_json_is_written_and_read() {
    let server = Fixture::new();
    let mut client = server.client();
    check(
        &mut client,
        &[
            (
                "cjson.encode_sparse_array(true) return cjson.encode({[100] = 1})",
                "\"{\"100\":1}\"",
            ),
            (
                "cjson.encode_sparse_array(false, 1, 20) return cjson.encode({[15] = 1})",
                "\"[null,null,null,null,null,null,null,null,null,null,null,null,null,null,1]\"",
            ),
            (
                "cjson.encode_number_precision(3) return cjson.encode({1/3, 12345})",
                "\"[0.333,1.23e+04]\"",
            ),
            (
                "cjson.encode_invalid_numbers(true) return cjson.encode({1/0, -1/0, 0/0})",
                "\"[inf,-inf,nan]\"",
            ),
            (
                "cjson.encode_invalid_numbers('null') return cjson.encode({1/0, 0/0})",
                "\"[null,null]\"",
            ),
            (
                "return {tostring(cjson.encode_invalid_numbers('null')), cjson.encode_max_depth(7)}",
                "[\"null\" :7]",
            ),
            ("return #{cjson.encode_sparse_array()}", ":3"),
            (
                "cjson.encode_max_depth(1500) local t = {} for _ = 2, 1500 do t = {t} end \
                 return #cjson.encode(t)",
                ":3000",
            ),
            (
                "cjson.decode_max_depth(1500) \
                 cjson.decode(('['):rep(1500) .. (']'):rep(1500)) return 1",
                ":1",
            ),
            // The next script begins with what Redis begins with.
            ("return cjson.encode_max_depth()", ":1000"),
            ("return cjson.encode(1/3)", "\"0.33333333333333\""),
        ],
    );
}

#[test]
fn scripts_choose_what_is_no_json() {
    let server = Fixture::new();
    let mut client = server.client();
    let wrong = "-ERR user_script:1: ";
    for (script, problem) in [
        (
            "cjson.encode_max_depth(2) local _ = cjson.encode({{{}}})",
            "Cannot serialise, excessive nesting (3)",
        ),
        (
            "cjson.decode_max_depth(2) local _ = cjson.decode('[[[]]]')",
            "Found too many nested data structures (3) at character 3",
        ),
        (
            "cjson.decode_invalid_numbers(false) local _ = cjson.decode('[0x1]')",
            "Expected value but found invalid number at character 2",
        ),
        (
            "cjson.decode_invalid_numbers(false) local _ = cjson.decode('[nan]')",
            "Expected value but found invalid token at character 2",
        ),
        (
            "local _ = cjson.encode_max_depth(0)",
            "bad argument #1 to 'encode_max_depth' (expected integer between 1 and 2147483647)",
        ),
        (
            "local _ = cjson.encode_invalid_numbers('no')",
            "bad argument #1 to 'encode_invalid_numbers' (invalid option 'no')",
        ),
        (
            "local _ = cjson.encode_keep_buffer(true, true)",
            "bad argument #2 to 'encode_keep_buffer' (found too many arguments)",
        ),
        // Deeper than 2000 nothing goes.
        (
            "cjson.encode_max_depth(2^31 - 1) local t = {} t.a = t local _ = cjson.encode(t)",
            "Cannot serialise, excessive nesting (2001)",
        ),
        (
            "cjson.decode_max_depth(9999) local _ = cjson.decode(('{\"a\":'):rep(9999))",
            "Found too many nested data structures (2001) at character 10001",
        ),
    ] {
        let reply = eval(&mut client, script, &[], &[]);
        let expected = format!("{wrong}{problem}");
        assert!(reply.starts_with(&expected), "{script}: {reply}");
    }
}

#[test]
fn what_a_script_chooses_of_json_ends_with_it() {
    let server = Fixture::new();
    let mut client = server.client();
    let library = "#!lua name=l\nredis.register_function('f', function() \
                   cjson.encode_number_precision(2) return cjson.encode(1/3) end)";
    let loaded = show(&client.call(&["FUNCTION", "LOAD", library]));
    assert_eq!(loaded, "\"l\"");
    // Also within one transaction.
    client.check(&[("FCALL f 0", "\"0.33\""), ("MULTI", "+OK")]);
    let chooses = "cjson.encode_number_precision(5) return cjson.encode(1/3)";
    client.call(&["EVAL", chooses, "0"]);
    client.call(&["FCALL", "f", "0"]);
    client.call(&["EVAL", "return cjson.encode(1/3)", "0"]);
    let replies = "[\"0.33333\" \"0.33\" \"0.33333333333333\"]";
    assert_eq!(client.run("EXEC"), replies);
}

#[test]
fn what_is_no_json_or_message_is_an_error() {
    let server = Fixture::new();
    let mut client = server.client();
    check_errors(
        &mut client,
        &[
            (
                "local _ = cjson.encode(print)",
                "-ERR user_script:1: Script attempted to access nonexistent global variable 'print'",
            ),
            (
                "local _ = cjson.encode(tostring)",
                "-ERR user_script:1: Cannot serialise function: type not supported",
            ),
            (
                "local _ = cjson.encode({[1] = 1, [30] = 2})",
                "-ERR user_script:1: Cannot serialise table: excessively sparse array",
            ),
            (
                "local _ = cjson.encode(1/0)",
                "-ERR user_script:1: Cannot serialise number: must not be NaN or Inf",
            ),
            (
                "local t = {} t[1] = t local _ = cjson.encode(t)",
                "-ERR user_script:1: Cannot serialise, excessive nesting (1001)",
            ),
            (
                "local _ = cjson.decode('[1,]')",
                "-ERR user_script:1: Expected value but found T_ARR_END at character 4",
            ),
            (
                "local _ = cjson.decode(('['):rep(1001))",
                "-ERR user_script:1: Found too many nested data structures (1001) at character 1001",
            ),
            (
                "local _ = cjson.decode('[1,\\0]')",
                "-ERR user_script:1: Expected value but found T_END at character 4",
            ),
            (
                "redis.set_repl(4)",
                "-ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
            ),
            ("redis.setresp(4)", "-ERR RESP version must be 2 or 3."),
            (
                "local _ = cmsgpack.unpack_one('\\1', 'x')",
                "-ERR user_script:1: bad argument #2 to 'unpack_one' (number expected, got string)",
            ),
            (
                "local _ = cmsgpack.unpack_limit('\\1', 1, {})",
                "-ERR user_script:1: bad argument #3 to 'unpack_limit' (number expected, got table)",
            ),
            (
                "local _ = cmsgpack.unpack_limit('\\1')",
                "-ERR user_script:1: bad argument #2 to 'unpack_limit' (number expected, got no value)",
            ),
            (
                "local _ = cmsgpack.unpack('\\146\\1')",
                "-ERR user_script:1: Missing bytes in input.",
            ),
            (
                "local _ = cmsgpack.unpack('\\193')",
                "-ERR user_script:1: Bad data format in input.",
            ),
        ],
    );
}

#[test]
fn scripts_have_structures_of_c() {
    let server = Fixture::new();
    let mut client = server.client();
    let bytes = "local s = struct.pack(ARGV[1], 1, -2, 3) return {s:byte(1, -1)}";
    for (format, expected) in [
        ("bbb", "[:1 :254 :3]"),
        (">hhh", "[:0 :1 :255 :254 :0 :3]"),
        ("<hhh", "[:1 :0 :254 :255 :3 :0]"),
        ("!4bib", "[:1 :0 :0 :0 :254 :255 :255 :255 :3]"),
        (">I3xi2B", "[:0 :0 :1 :0 :255 :254 :3]"),
    ] {
        assert_eq!(
            eval(&mut client, bytes, &[], &[format]),
            expected,
            "{format}"
        );
    }
    check(
        &mut client,
        &[
            ("return {struct.unpack('>I2', '\\1\\2')}", "[:258 :3]"),
            (
                "return {struct.unpack('i8', struct.pack('i8', -5))}",
                "[:-5 :9]",
            ),
            ("return {struct.unpack('Bc0', '\\3abcd')}", "[\"abc\" :5]"),
            (
                "return {struct.unpack('sB', 'ab\\0\\7', 2)}",
                "[\"b\" :7 :5]",
            ),
            (
                "return tostring(struct.unpack('d', struct.pack('d', 0.1)))",
                "\"0.1\"",
            ),
            (
                "return tostring(struct.unpack('>f', struct.pack('>f', 0.5)))",
                "\"0.5\"",
            ),
            ("return struct.size('!bd')", ":16"),
            ("return #struct.pack('c3', 'abcdef')", ":3"),
        ],
    );
}

#[test]
fn what_is_no_structure_is_an_error() {
    let server = Fixture::new();
    let mut client = server.client();
    check_errors(
        &mut client,
        &[
            (
                "local _ = struct.pack('z', 1)",
                "-ERR user_script:1: bad argument #1 to 'pack' (invalid format option 'z')",
            ),
            (
                "local _ = struct.pack('b')",
                "-ERR user_script:1: bad argument #2 to 'pack' (number expected, got nil)",
            ),
            (
                "local _ = struct.unpack('i', 'abc')",
                "-ERR user_script:1: bad argument #2 to 'unpack' (data string too short)",
            ),
            (
                "local _ = struct.unpack('s', 'abc', 9e18)",
                "-ERR user_script:1: bad argument #2 to 'unpack' (data string too short)",
            ),
            (
                "local _ = struct.unpack('s', 'abc', 0)",
                "-ERR user_script:1: bad argument #3 to 'unpack' (offset must be 1 or greater)",
            ),
            (
                "local _ = struct.unpack('Bc0', '\\5abcd')",
                "-ERR user_script:1: bad argument #2 to 'unpack' (data string too short)",
            ),
            (
                "local _ = struct.unpack(('b'):rep(10000), ('x'):rep(10000))",
                "-ERR user_script:1: stack overflow (too many results)",
            ),
            (
                "local _ = struct.size('c99999999999')",
                "-ERR user_script:1: integral size overflow",
            ),
        ],
    );
}

#[test]
fn json_is_as_deep_as_in_redis() {
    let server = Fixture::new();
    let mut client = server.client();
    let encode = "local t = {} for _ = 2, tonumber(ARGV[1]) do t = {a = {t}} end \
                  return #cjson.encode(t)";
    assert_eq!(eval(&mut client, encode, &[], &["500"]), ":3994");
    let decode = "local n = tonumber(ARGV[1]) \
                  local t = cjson.decode(('{\"a\":['):rep(n) .. (']}'):rep(n)) \
                  for _ = 2, n do t = t.a[1] end return type(t.a)";
    assert_eq!(eval(&mut client, decode, &[], &["500"]), "\"table\"");
    // Whoever has little of the machine's stack left, too.
    let inside = "local function f(n) if n == 0 then \
                      local t = {} for _ = 2, 1000 do t = {t} end \
                      return #cjson.encode(t) + #cjson.encode(cjson.decode(cjson.encode(t))) \
                  end return coroutine.wrap(f)(n - 1) + 0 end return f(20)";
    assert_eq!(eval(&mut client, inside, &[], &[]), ":4000");
}

#[test]
fn scripts_have_many_values_at_once() {
    let server = spacious();
    let mut client = server.client();
    // Many scripts are known, and have been compiled by both loops.
    for n in 0..300 {
        let reply = eval(&mut client, &format!("return {n}"), &[], &[]);
        assert_eq!(reply, format!(":{n}"));
    }
    let push = "local t = {} for i = 1, 7500 do t[i] = 'e' .. i end \
                return redis.call('RPUSH', KEYS[1], unpack(t))";
    assert_eq!(eval(&mut client, push, &["list"], &[]), ":7500");
    check(
        &mut client,
        &[
            (
                "local t = {} for i = 1, 20000 do t['k' .. i] = 'v' .. i end \
                 local n = 0 for k, v in pairs(cmsgpack.unpack(cmsgpack.pack(t))) do \
                     if v == 'v' .. k:sub(2) then n = n + 1 end end return n",
                ":20000",
            ),
            ("return #redis.call('LRANGE', 'list', 0, -1)", ":7500"),
            (
                "local t = {} for i = 1, 20000 do t['k' .. i] = 'v' .. i end \
                 local n = 0 for k, v in pairs(cjson.decode(cjson.encode(t))) do \
                     if v == 'v' .. k:sub(2) then n = n + 1 end end return n",
                ":20000",
            ),
        ],
    );
    let set = "local t = {} for i = 1, 20000 do t['k' .. i] = true end return {set = t}";
    let Answer::Array(elements) = client.call(&["EVAL", set, "0"]) else {
        panic!("a set is an array in RESP2");
    };
    assert_eq!(elements.len(), 20_000);
    // More than there is room for is an error, and nothing else.
    let many = "return pcall(redis.call, 'RPUSH', 'more', unpack(ARGV))";
    let arguments: Vec<String> = (0..9000).map(|n| n.to_string()).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let reply = eval(&mut client, many, &[], &arguments);
    assert!(reply.contains("too many results to unpack"), "{reply}");
    assert_eq!(client.run("EXISTS more"), ":0");
}

#[test]
fn strings_of_scripts_are_any_bytes() {
    let server = Fixture::new();
    let mut client = server.client();
    for (script, expected) in [
        (&b"return 'a\0b\xff'"[..], &b"$4\r\na\0b\xff\r\n"[..]),
        (
            b"return redis.status_reply('\xff\\r\\n\0x')",
            b"+\xff  \r\n",
        ),
        (b"return redis.error_reply('E \xfe')", b"-E \xfe\r\n"),
        (b"return {err = 'a\\nb'}", b"-a b\r\n"),
        (b"return redis.call('SET', '\xff\0', '\0\xfe')", b"+OK\r\n"),
        (b"return redis.call('GET', '\xff\0')", b"$2\r\n\0\xfe\r\n"),
        (b"return #cjson.encode('\xff\0')", b":9\r\n"),
    ] {
        client.send(&encode(&[b"EVAL", script, b"0"]));
        let mut reply = vec![0; expected.len()];
        client.stream.read_exact(&mut reply).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&reply),
            String::from_utf8_lossy(expected)
        );
    }
    // An error's text is shown as well as it can be.
    client.send(&encode(&[&b"EVAL"[..], b"error('\xff\\r\\nx')", b"0"]));
    let error = show(&client.answer());
    assert!(error.starts_with("-ERR user_script:1: "), "{error}");
    client.send(&encode(&[&b"EVAL"[..], b"\xff", b"0"]));
    let error = show(&client.answer());
    assert!(error.starts_with("-ERR Error compiling script"), "{error}");
    assert_eq!(client.run("PING"), "+PONG");
}
