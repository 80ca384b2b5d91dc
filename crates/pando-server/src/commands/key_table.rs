//! Which arguments of the commands of Redis are keys, and what becomes of these: as COMMAND INFO,
//! GETKEYS and GETKEYSANDFLAGS tell clients. What the server itself goes by is `Command::keys`.

/// Some keys of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeySpecification {
    /// Names of flags, separated by blanks.
    pub(super) flags: &'static str,
    pub(super) begin: Begin,
    pub(super) find: Find,
}

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// At an argument.
    Index(i32),
    /// Behind a word, which is looked for from an argument on.
    Keyword(&'static str, i32),
    /// Nothing simple says it.
    Unknown,
}

/// Which are keys, from there on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Find {
    /// Up to the last, which is counted from the first, or below zero from the end; and each how
    /// many.
    Range(i32, i32),
    /// As many as the first argument says, behind it.
    Counted,
    /// All in the first half of what is there.
    FirstHalf,
    Unknown,
}

const fn at(flags: &'static str, begin: Begin, find: Find) -> KeySpecification {
    KeySpecification { flags, begin, find }
}

const fn one(flags: &'static str, index: i32) -> KeySpecification {
    at(flags, Begin::Index(index), Find::Range(0, 1))
}

pub(super) const fn range(
    flags: &'static str,
    index: i32,
    last: i32,
    step: i32,
) -> KeySpecification {
    at(flags, Begin::Index(index), Find::Range(last, step))
}

pub(super) const fn counted(flags: &'static str, index: i32) -> KeySpecification {
    at(flags, Begin::Index(index), Find::Counted)
}

const fn keyword(flags: &'static str, word: &'static str, from: i32) -> KeySpecification {
    at(flags, Begin::Keyword(word, from), Find::Range(0, 1))
}

/// The keys behind the word STREAMS.
const fn of_streams(from: i32) -> KeySpecification {
    at(
        "RO access",
        Begin::Keyword("STREAMS", from),
        Find::FirstHalf,
    )
}

const fn unknown(flags: &'static str) -> KeySpecification {
    at(flags, Begin::Unknown, Find::Unknown)
}

/// By name; that of a subcommand has its container in front. Ordered.
pub(super) const KEY_TABLE: &[(&str, &[KeySpecification])] = &[
    ("append", &[one("RW insert", 1)]),
    ("bitcount", &[one("RO access", 1)]),
    ("bitfield", &[one("RW access update variable_flags", 1)]),
    ("bitfield_ro", &[one("RO access", 1)]),
    (
        "bitop",
        &[one("OW update", 2), range("RO access", 3, -1, 1)],
    ),
    ("bitpos", &[one("RO access", 1)]),
    ("blmove", &[one("RW access delete", 1), one("RW insert", 2)]),
    ("blmpop", &[counted("RW access delete", 2)]),
    ("blpop", &[range("RW access delete", 1, -2, 1)]),
    ("brpop", &[range("RW access delete", 1, -2, 1)]),
    (
        "brpoplpush",
        &[one("RW access delete", 1), one("RW insert", 2)],
    ),
    ("bzmpop", &[counted("RW access delete", 2)]),
    ("bzpopmax", &[range("RW access delete", 1, -2, 1)]),
    ("bzpopmin", &[range("RW access delete", 1, -2, 1)]),
    ("copy", &[one("RO access", 1), one("OW update", 2)]),
    ("decr", &[one("RW access update", 1)]),
    ("decrby", &[one("RW access update", 1)]),
    ("del", &[range("RM delete", 1, -1, 1)]),
    ("eval", &[counted("RW access update", 2)]),
    ("eval_ro", &[counted("RO access", 2)]),
    ("evalsha", &[counted("RW access update", 2)]),
    ("evalsha_ro", &[counted("RO access", 2)]),
    ("exists", &[range("RO", 1, -1, 1)]),
    ("expire", &[one("RW update", 1)]),
    ("expireat", &[one("RW update", 1)]),
    ("expiretime", &[one("RO access", 1)]),
    ("fcall", &[counted("RW access update", 2)]),
    ("fcall_ro", &[counted("RO access", 2)]),
    ("geoadd", &[one("RW update", 1)]),
    ("geodist", &[one("RO access", 1)]),
    ("geohash", &[one("RO access", 1)]),
    ("geopos", &[one("RO access", 1)]),
    (
        "georadius",
        &[
            one("RO access", 1),
            keyword("OW update", "STORE", 6),
            keyword("OW update", "STOREDIST", 6),
        ],
    ),
    ("georadius_ro", &[one("RO access", 1)]),
    (
        "georadiusbymember",
        &[
            one("RO access", 1),
            keyword("OW update", "STORE", 5),
            keyword("OW update", "STOREDIST", 5),
        ],
    ),
    ("georadiusbymember_ro", &[one("RO access", 1)]),
    ("geosearch", &[one("RO access", 1)]),
    (
        "geosearchstore",
        &[one("OW update", 1), one("RO access", 2)],
    ),
    ("get", &[one("RO access", 1)]),
    ("getbit", &[one("RO access", 1)]),
    ("getdel", &[one("RW access delete", 1)]),
    ("getex", &[one("RW access update", 1)]),
    ("getrange", &[one("RO access", 1)]),
    ("getset", &[one("RW access update", 1)]),
    ("hdel", &[one("RW delete", 1)]),
    ("hexists", &[one("RO", 1)]),
    ("hget", &[one("RO access", 1)]),
    ("hgetall", &[one("RO access", 1)]),
    ("hincrby", &[one("RW access update", 1)]),
    ("hincrbyfloat", &[one("RW access update", 1)]),
    ("hkeys", &[one("RO access", 1)]),
    ("hlen", &[one("RO", 1)]),
    ("hmget", &[one("RO access", 1)]),
    ("hmset", &[one("RW update", 1)]),
    ("hrandfield", &[one("RO access", 1)]),
    ("hscan", &[one("RO access", 1)]),
    ("hset", &[one("RW update", 1)]),
    ("hsetnx", &[one("RW insert", 1)]),
    ("hstrlen", &[one("RO", 1)]),
    ("hvals", &[one("RO access", 1)]),
    ("incr", &[one("RW access update", 1)]),
    ("incrby", &[one("RW access update", 1)]),
    ("incrbyfloat", &[one("RW access update", 1)]),
    ("lcs", &[range("RO access", 1, 1, 1)]),
    ("lindex", &[one("RO access", 1)]),
    ("linsert", &[one("RW insert", 1)]),
    ("llen", &[one("RO", 1)]),
    ("lmove", &[one("RW access delete", 1), one("RW insert", 2)]),
    ("lmpop", &[counted("RW access delete", 1)]),
    ("lpop", &[one("RW access delete", 1)]),
    ("lpos", &[one("RO access", 1)]),
    ("lpush", &[one("RW insert", 1)]),
    ("lpushx", &[one("RW insert", 1)]),
    ("lrange", &[one("RO access", 1)]),
    ("lrem", &[one("RW delete", 1)]),
    ("lset", &[one("RW update", 1)]),
    ("ltrim", &[one("RW delete", 1)]),
    ("memory|usage", &[one("RO", 2)]),
    ("mget", &[range("RO access", 1, -1, 1)]),
    ("move", &[one("RW access update", 1)]),
    ("mset", &[range("OW update", 1, -1, 2)]),
    ("msetnx", &[range("OW insert", 1, -1, 2)]),
    ("object|encoding", &[one("RO", 2)]),
    ("object|freq", &[one("RO", 2)]),
    ("object|idletime", &[one("RO", 2)]),
    ("object|refcount", &[one("RO", 2)]),
    ("persist", &[one("RW update", 1)]),
    ("pexpire", &[one("RW update", 1)]),
    ("pexpireat", &[one("RW update", 1)]),
    ("pexpiretime", &[one("RO access", 1)]),
    ("pfadd", &[one("RW insert", 1)]),
    ("pfcount", &[range("RW access", 1, -1, 1)]),
    ("pfdebug", &[one("RW access", 2)]),
    (
        "pfmerge",
        &[one("RW access insert", 1), range("RO access", 2, -1, 1)],
    ),
    ("psetex", &[one("OW update", 1)]),
    ("pttl", &[one("RO access", 1)]),
    ("rename", &[one("RW access delete", 1), one("OW update", 2)]),
    (
        "renamenx",
        &[one("RW access delete", 1), one("OW insert", 2)],
    ),
    ("restore", &[one("OW update", 1)]),
    ("rpop", &[one("RW access delete", 1)]),
    (
        "rpoplpush",
        &[one("RW access delete", 1), one("RW insert", 2)],
    ),
    ("rpush", &[one("RW insert", 1)]),
    ("rpushx", &[one("RW insert", 1)]),
    ("sadd", &[one("RW insert", 1)]),
    ("scard", &[one("RO", 1)]),
    ("sdiff", &[range("RO access", 1, -1, 1)]),
    (
        "sdiffstore",
        &[one("OW update", 1), range("RO access", 2, -1, 1)],
    ),
    ("set", &[one("RW access update variable_flags", 1)]),
    ("setbit", &[one("RW access update", 1)]),
    ("setex", &[one("OW update", 1)]),
    ("setnx", &[one("OW insert", 1)]),
    ("setrange", &[one("RW update", 1)]),
    ("sinter", &[range("RO access", 1, -1, 1)]),
    ("sintercard", &[counted("RO access", 1)]),
    (
        "sinterstore",
        &[one("RW update", 1), range("RO access", 2, -1, 1)],
    ),
    ("sismember", &[one("RO", 1)]),
    ("smembers", &[one("RO access", 1)]),
    ("smismember", &[one("RO access", 1)]),
    ("smove", &[one("RW access delete", 1), one("RW insert", 2)]),
    (
        "sort",
        &[
            one("RO access", 1),
            unknown("RO access"),
            unknown("OW update"),
        ],
    ),
    ("sort_ro", &[one("RO access", 1), unknown("RO access")]),
    ("spop", &[one("RW access delete", 1)]),
    ("spublish", &[one("not_key", 1)]),
    ("srandmember", &[one("RO access", 1)]),
    ("srem", &[one("RW delete", 1)]),
    ("sscan", &[one("RO access", 1)]),
    ("ssubscribe", &[range("not_key", 1, -1, 1)]),
    ("strlen", &[one("RO", 1)]),
    ("substr", &[one("RO access", 1)]),
    ("sunion", &[range("RO access", 1, -1, 1)]),
    (
        "sunionstore",
        &[one("OW update", 1), range("RO access", 2, -1, 1)],
    ),
    ("sunsubscribe", &[range("not_key", 1, -1, 1)]),
    ("touch", &[range("RO", 1, -1, 1)]),
    ("ttl", &[one("RO access", 1)]),
    ("type", &[one("RO", 1)]),
    ("unlink", &[range("RM delete", 1, -1, 1)]),
    ("watch", &[range("RO", 1, -1, 1)]),
    ("xack", &[one("RW update", 1)]),
    ("xadd", &[one("RW update", 1)]),
    ("xautoclaim", &[one("RW delete", 1)]),
    ("xclaim", &[one("RW update", 1)]),
    ("xdel", &[one("RW delete", 1)]),
    ("xgroup|create", &[one("RW insert", 2)]),
    ("xgroup|createconsumer", &[one("RW insert", 2)]),
    ("xgroup|delconsumer", &[one("RW delete", 2)]),
    ("xgroup|destroy", &[one("RW delete", 2)]),
    ("xgroup|setid", &[one("RW update", 2)]),
    ("xinfo|consumers", &[one("RO access", 2)]),
    ("xinfo|groups", &[one("RO access", 2)]),
    ("xinfo|stream", &[one("RO access", 2)]),
    ("xlen", &[one("RO", 1)]),
    ("xpending", &[one("RO access", 1)]),
    ("xrange", &[one("RO access", 1)]),
    ("xread", &[of_streams(1)]),
    ("xreadgroup", &[of_streams(4)]),
    ("xrevrange", &[one("RO access", 1)]),
    ("xsetid", &[one("RW update", 1)]),
    ("xtrim", &[one("RW delete", 1)]),
    ("zadd", &[one("RW update", 1)]),
    ("zcard", &[one("RO", 1)]),
    ("zcount", &[one("RO access", 1)]),
    ("zdiff", &[counted("RO access", 1)]),
    (
        "zdiffstore",
        &[one("OW update", 1), counted("RO access", 2)],
    ),
    ("zincrby", &[one("RW access update", 1)]),
    ("zinter", &[counted("RO access", 1)]),
    ("zintercard", &[counted("RO access", 1)]),
    (
        "zinterstore",
        &[one("OW update", 1), counted("RO access", 2)],
    ),
    ("zlexcount", &[one("RO access", 1)]),
    ("zmpop", &[counted("RW access delete", 1)]),
    ("zmscore", &[one("RO access", 1)]),
    ("zpopmax", &[one("RW access delete", 1)]),
    ("zpopmin", &[one("RW access delete", 1)]),
    ("zrandmember", &[one("RO access", 1)]),
    ("zrange", &[one("RO access", 1)]),
    ("zrangebylex", &[one("RO access", 1)]),
    ("zrangebyscore", &[one("RO access", 1)]),
    ("zrangestore", &[one("OW update", 1), one("RO access", 2)]),
    ("zrank", &[one("RO access", 1)]),
    ("zrem", &[one("RW delete", 1)]),
    ("zremrangebylex", &[one("RW delete", 1)]),
    ("zremrangebyrank", &[one("RW delete", 1)]),
    ("zremrangebyscore", &[one("RW delete", 1)]),
    ("zrevrange", &[one("RO access", 1)]),
    ("zrevrangebylex", &[one("RO access", 1)]),
    ("zrevrangebyscore", &[one("RO access", 1)]),
    ("zrevrank", &[one("RO access", 1)]),
    ("zscan", &[one("RO access", 1)]),
    ("zscore", &[one("RO access", 1)]),
    ("zunion", &[counted("RO access", 1)]),
    (
        "zunionstore",
        &[one("OW update", 1), counted("RO access", 2)],
    ),
];
