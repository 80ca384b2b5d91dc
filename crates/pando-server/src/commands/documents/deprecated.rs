//! Commands that Redis has newer ones for.

/// By name: the version that deprecated it, and what to use.
pub(super) const REPLACED: &[(&str, &str, &str)] = &[
    (
        "brpoplpush",
        "6.2.0",
        "`BLMOVE` with the `RIGHT` and `LEFT` arguments",
    ),
    (
        "georadius",
        "6.2.0",
        "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument",
    ),
    (
        "georadius_ro",
        "6.2.0",
        "`GEOSEARCH` with the `BYRADIUS` argument",
    ),
    (
        "georadiusbymember",
        "6.2.0",
        "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
    ),
    (
        "georadiusbymember_ro",
        "6.2.0",
        "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments",
    ),
    ("getset", "6.2.0", "`SET` with the `!GET` argument"),
    ("hmset", "4.0.0", "`HSET` with multiple field-value pairs"),
    (
        "rpoplpush",
        "6.2.0",
        "`LMOVE` with the `RIGHT` and `LEFT` arguments",
    ),
    ("slaveof", "5.0.0", "`REPLICAOF`"),
    ("substr", "2.0.0", "`GETRANGE`"),
    ("zrangebylex", "6.2.0", "`ZRANGE` with the `BYLEX` argument"),
    (
        "zrangebyscore",
        "6.2.0",
        "`ZRANGE` with the `BYSCORE` argument",
    ),
    ("zrevrange", "6.2.0", "`ZRANGE` with the `REV` argument"),
    (
        "zrevrangebylex",
        "6.2.0",
        "`ZRANGE` with the `REV` and `BYLEX` arguments",
    ),
    (
        "zrevrangebyscore",
        "6.2.0",
        "`ZRANGE` with the `REV` and `BYSCORE` arguments",
    ),
];

/// Returns the version that deprecated the command with this name, and what to use.
pub(super) fn replacement(name: &str) -> Option<(&'static str, &'static str)> {
    let at = REPLACED
        .binary_search_by_key(&name, |(name, ..)| name)
        .ok()?;
    let (_, since, replacement) = REPLACED[at];
    Some((since, replacement))
}
