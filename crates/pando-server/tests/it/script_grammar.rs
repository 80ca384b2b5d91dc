//! Hostile scripts, made of bytes: each byte chooses, so that a program that mutates bytes mutates
//! scripts. The fuzz targets of `fuzz/` read this file, too, so it needs nothing but `std`.

use std::fmt::Write as _;

/// Deepest nesting of what is made.
const DEPTH_MAX: usize = 5;

const FUNCTIONS: &[&str] = &[
    "string.byte",
    "string.char",
    "string.find",
    "string.format",
    "string.gmatch",
    "string.gsub",
    "string.gfind",
    "string.len",
    "string.lower",
    "string.match",
    "string.rep",
    "string.reverse",
    "string.sub",
    "string.upper",
    "table.concat",
    "table.foreach",
    "table.foreachi",
    "table.getn",
    "table.insert",
    "table.maxn",
    "table.remove",
    "table.sort",
    "math.abs",
    "math.ceil",
    "math.floor",
    "math.fmod",
    "math.frexp",
    "math.ldexp",
    "math.log",
    "math.max",
    "math.min",
    "math.modf",
    "math.mod",
    "math.pow",
    "math.random",
    "math.randomseed",
    "math.deg",
    "math.sqrt",
    "bit.arshift",
    "bit.band",
    "bit.bnot",
    "bit.bor",
    "bit.bswap",
    "bit.bxor",
    "bit.lshift",
    "bit.rol",
    "bit.ror",
    "bit.rshift",
    "bit.tobit",
    "bit.tohex",
    "cjson.encode",
    "cjson.decode",
    "cjson.encode_max_depth",
    "cjson.encode_sparse_array",
    "cmsgpack.pack",
    "cmsgpack.unpack",
    "cmsgpack.unpack_one",
    "cmsgpack.unpack_limit",
    "struct.pack",
    "struct.unpack",
    "struct.size",
    "redis.call",
    "redis.pcall",
    "redis.sha1hex",
    "redis.error_reply",
    "redis.status_reply",
    "redis.setresp",
    "redis.set_repl",
    "redis.log",
    "redis.acl_check_cmd",
    "redis.breakpoint",
    "redis.replicate_commands",
    "redis.debug",
    "coroutine.create",
    "coroutine.resume",
    "coroutine.running",
    "coroutine.status",
    "coroutine.wrap",
    "coroutine.yield",
    "os.clock",
    "assert",
    "error",
    "getmetatable",
    "ipairs",
    "load",
    "loadstring",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setmetatable",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "xpcall",
    "print",
    "redis.register_function",
    "dofile",
    "setfenv",
    "newproxy",
];

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "-1",
    "-2",
    "8",
    "32",
    "255",
    "1000",
    "8000",
    "65536",
    "-65537",
    "1e6",
    "2^31",
    "-2^31",
    "2^31-1",
    "2^32",
    "2^53",
    "-2^53",
    "2^63",
    "-2^63",
    "2^64",
    "1e308",
    "-1e308",
    "5e-324",
    "0.5",
    "-0.1",
    "1/0",
    "-1/0",
    "0/0",
    "-0",
    "1.5",
    "12345.678",
];

/// Texts that some function reads in a way of its own.
const STRINGS: &[&str] = &[
    "''",
    "'a'",
    "'abc'",
    "'aaaaaaaaaaaaaaaaaaaaaaaa'",
    "'10'",
    "'0x10'",
    "' 1 '",
    "'1e400'",
    "'\\0'",
    "'a\\0b'",
    "'key'",
    "'list'",
    "'.-'",
    "'(.*)'",
    "'a*'",
    "'(a*)(a*)(a*)b'",
    "'%'",
    "'[a'",
    "'[%'",
    "'[]]'",
    "'[^]'",
    "'%b()'",
    "'%b'",
    "'%f[%w]'",
    "'%f'",
    "'()'",
    "'(()'",
    "')'",
    "'(a)%1'",
    "'%1'",
    "'%0'",
    "'^a'",
    "'a$'",
    "'$'",
    "'%s+'",
    "'%z'",
    "'[a-]'",
    "'[a-%z]'",
    "'a?a?a?a?a?a?a?aaaaaaa'",
    "'.-.-.-.-b'",
    "'((((((((((((((((((((((((((((((((((.'",
    "'%1%2%9'",
    "'%d'",
    "'%5.3f'",
    "'%99s'",
    "'%q'",
    "'%s%s%s%s'",
    "'%100d'",
    "'%c%i%x%X%o%u%e%g%E%G%a'",
    "'{}'",
    "'[1,2,{\"a\":null}]'",
    "'[[[[[[[['",
    "'{\"a\":'",
    "'\"\\\\ud83d\\\\ude00\"'",
    "'1e9'",
    "'\"\\\\u'",
    "'nan'",
    "'-'",
    "'[1,]'",
    "'\\221\\255\\255\\255\\255'",
    "'\\223\\255\\255\\255'",
    "'\\145\\145\\145\\145'",
    "'\\129\\192\\192'",
    "'\\219\\255'",
    "'\\203\\127\\240\\0'",
    "'bBhHlL'",
    "'>!8bi32c0s'",
    "'c2147483647'",
    "'i33'",
    "'!3'",
    "'Bc0'",
    "'x x x'",
    "'i16I7'",
    "'GET'",
    "'SET'",
    "'LRANGE'",
    "'EVAL'",
    "'FUNCTION'",
    "'SCAN'",
    "'k'",
    "'n'",
    "'v'",
    "'__index'",
    "'return 1'",
    "'return ('",
    "'\\27LJ'",
    "'\\27LuaQ'",
    "'for i = 1, 10 do end'",
];

const EVENTS: &[&str] = &[
    "__index",
    "__newindex",
    "__call",
    "__tostring",
    "__gc",
    "__len",
    "__concat",
    "__eq",
    "__lt",
    "__le",
    "__add",
    "__unm",
    "__metatable",
    "__mode",
    "__pairs",
];

const OPERATORS: &[&str] = &[
    "+", "-", "*", "/", "%", "^", "..", "==", "~=", "<", "<=", ">", ">=", "and", "or",
];

/// Makes one script.
pub(crate) struct Grammar<'b> {
    bytes: &'b [u8],
    at: usize,
    out: String,
}

impl<'b> Grammar<'b> {
    /// Returns the script that some bytes stand for. Without bytes it ends as soon as it can.
    pub(crate) fn script(bytes: &'b [u8]) -> String {
        let mut grammar = Self {
            bytes,
            at: 0,
            out: "local a, b, c = KEYS[1], ARGV[1], {}\n".to_owned(),
        };
        while grammar.at < bytes.len() {
            grammar.statement(0);
            grammar.out.push('\n');
        }
        grammar.out.push_str("return a, b, c");
        grammar.out
    }

    fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    fn one_of(&mut self, words: &[&'static str]) -> &'static str {
        words[usize::from(self.byte()) % words.len()]
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn variable(&mut self) {
        let name = self.one_of(&["a", "b", "c", "KEYS", "ARGV", "_G", "a", "b", "c"]);
        self.put(name);
    }

    fn block(&mut self, depth: usize) {
        for _ in 0..=self.byte() % 3 {
            self.statement(depth + 1);
            self.put(" ");
        }
    }

    fn statement(&mut self, depth: usize) {
        let choice = if depth >= DEPTH_MAX {
            0
        } else {
            self.byte() % 16
        };
        match choice {
            0..=3 => {
                let name = self.one_of(&["a", "b", "c"]);
                self.put(name);
                self.put(" = ");
                self.value(depth);
            }
            4..=6 => {
                // Most that is hostile fails: what follows is to run all the same.
                self.put("pcall(function() ");
                self.block(depth);
                self.put("end)");
            }
            7 | 8 => self.call(depth),
            9 => {
                let count = self.one_of(&["3", "20", "1000", "1e5"]);
                let _ = write!(self.out, "for i = 1, {count} do ");
                self.block(depth);
                self.put("end");
            }
            10 => {
                self.put("if ");
                self.value(depth);
                self.put(" then ");
                self.block(depth);
                self.put("end");
            }
            11 => {
                self.put("for x, y in ");
                self.value(depth);
                self.put(" do a = x ");
                self.block(depth);
                self.put("end");
            }
            12 => {
                self.put("a, b = ");
                self.call(depth);
            }
            13 => {
                self.variable();
                self.put("[");
                self.value(depth);
                self.put("] = ");
                self.value(depth);
            }
            14 => {
                self.put("while ");
                self.value(depth);
                self.put(" do ");
                self.block(depth);
                self.put("end");
            }
            _ => {
                self.put("do local function f(x, ...) ");
                self.block(depth);
                self.put("return f(...) end c = f end");
            }
        }
        self.put(";");
    }

    fn value(&mut self, depth: usize) {
        let choice = match depth >= DEPTH_MAX {
            true => self.byte() % 8,
            false => self.byte() % 20,
        };
        match choice {
            0 => self.put("nil"),
            1..=3 => {
                let number = self.one_of(NUMBERS);
                self.put(number);
            }
            4 | 5 => {
                let text = self.one_of(STRINGS);
                self.put(text);
            }
            6 | 8 => self.variable(),
            7 => self.bytes_literal(),
            9..=12 => self.call(depth),
            13 => {
                let word =
                    self.one_of(&["true", "false", "...", "cjson.null", "#a", "-b", "not c"]);
                self.put(if word == "..." { "{}" } else { word });
            }
            14 => self.table(depth),
            15 => {
                let function = self.one_of(FUNCTIONS);
                self.put(function);
            }
            16 => {
                self.put("(");
                self.value(depth + 1);
                let operator = self.one_of(OPERATORS);
                let _ = write!(self.out, " {operator} ");
                self.value(depth + 1);
                self.put(")");
            }
            17 => {
                self.put("function(x, y) ");
                self.block(depth);
                self.put("return x end");
            }
            18 => {
                self.put("setmetatable({}, {");
                let event = self.one_of(EVENTS);
                let _ = write!(self.out, "{event} = ");
                self.value(depth + 1);
                self.put("})");
            }
            _ => {
                self.put("(");
                self.value(depth + 1);
                let count = self.one_of(&["2", "40", "1000", "20000", "1e6"]);
                let _ = write!(self.out, "):rep({count})");
            }
        }
    }

    /// A string of any bytes.
    fn bytes_literal(&mut self) {
        self.put("'");
        for _ in 0..self.byte() % 24 {
            let byte = self.byte();
            let _ = write!(self.out, "\\{byte:03}");
        }
        self.put("'");
    }

    fn table(&mut self, depth: usize) {
        self.put("{");
        for _ in 0..self.byte() % 4 {
            if self.byte().is_multiple_of(2) {
                self.put("[");
                self.value(depth + 1);
                self.put("] = ");
            }
            self.value(depth + 1);
            self.put(", ");
        }
        self.put("}");
    }

    fn call(&mut self, depth: usize) {
        let function = self.one_of(FUNCTIONS);
        self.put(function);
        self.put("(");
        for place in 0..self.byte() % 5 {
            if place > 0 {
                self.put(", ");
            }
            self.value(depth + 1);
        }
        self.put(")");
    }
}
