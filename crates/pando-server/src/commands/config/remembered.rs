//! Parameters of Redis about things that PandoDB does not have or does in another way: a value is
//! checked, remembered and shown, and has no effect.

use super::form::Form;
use super::parameter::Value;

const NUMBER: Form = Form::Integer(0, i64::MAX);
const SMALL: Form = Form::Integer(0, 2_147_483_647);
const FROM_ONE: Form = Form::Integer(1, 2_147_483_647);
const BYTES: Form = Form::Bytes(0, i64::MAX);
const fn kept(form: Form, first: &'static str) -> Value {
    Value::Remembered(form, first)
}

/// Each with the value that it has at first, which is that of Redis.
pub(super) const REMEMBERED: &[(&str, Value)] = &[
    ("acllog-max-len", kept(NUMBER, "128")),
    ("active-defrag-cycle-max", kept(Form::Integer(1, 99), "25")),
    ("active-defrag-cycle-min", kept(Form::Integer(1, 99), "1")),
    ("active-defrag-ignore-bytes", kept(BYTES, "104857600")),
    ("active-defrag-max-scan-fields", kept(FROM_ONE, "1000")),
    (
        "active-defrag-threshold-lower",
        kept(Form::Integer(0, 1000), "10"),
    ),
    (
        "active-defrag-threshold-upper",
        kept(Form::Integer(0, 1000), "100"),
    ),
    ("active-expire-effort", kept(Form::Integer(1, 10), "1")),
    ("activerehashing", kept(Form::Switch, "yes")),
    ("aof-load-truncated", kept(Form::Switch, "yes")),
    ("aof-rewrite-incremental-fsync", kept(Form::Switch, "yes")),
    ("aof-timestamp-enabled", kept(Form::Switch, "no")),
    ("aof-use-rdb-preamble", kept(Form::Switch, "yes")),
    ("auto-aof-rewrite-min-size", kept(BYTES, "67108864")),
    ("auto-aof-rewrite-percentage", kept(SMALL, "100")),
    (
        "client-query-buffer-limit",
        kept(Form::Bytes(1 << 20, i64::MAX), "1073741824"),
    ),
    ("crash-log-enabled", kept(Form::Switch, "yes")),
    ("crash-memcheck-enabled", kept(Form::Switch, "yes")),
    ("dynamic-hz", kept(Form::Switch, "yes")),
    ("hll-sparse-max-bytes", kept(BYTES, "3000")),
    ("hz", kept(SMALL, "10")),
    ("jemalloc-bg-thread", kept(Form::Switch, "yes")),
    ("lazyfree-lazy-eviction", kept(Form::Switch, "no")),
    ("lazyfree-lazy-expire", kept(Form::Switch, "no")),
    ("lazyfree-lazy-server-del", kept(Form::Switch, "no")),
    ("lazyfree-lazy-user-del", kept(Form::Switch, "no")),
    ("lazyfree-lazy-user-flush", kept(Form::Switch, "no")),
    ("lfu-decay-time", kept(SMALL, "1")),
    ("lfu-log-factor", kept(SMALL, "10")),
    ("list-compress-depth", kept(SMALL, "0")),
    (
        "maxmemory-eviction-tenacity",
        kept(Form::Integer(0, 100), "10"),
    ),
    ("maxmemory-samples", kept(FROM_ONE, "5")),
    ("min-replicas-max-lag", kept(SMALL, "10")),
    ("min-slaves-max-lag", Value::Alias("min-replicas-max-lag")),
    ("no-appendfsync-on-rewrite", kept(Form::Switch, "no")),
    ("proc-title-template", kept(Form::Text, "")),
    ("rdb-del-sync-files", kept(Form::Switch, "no")),
    ("rdb-save-incremental-fsync", kept(Form::Switch, "yes")),
    ("rdbcompression", kept(Form::Switch, "yes")),
    (
        "repl-backlog-size",
        kept(Form::Bytes(1, i64::MAX), "1048576"),
    ),
    ("repl-backlog-ttl", kept(NUMBER, "3600")),
    ("repl-disable-tcp-nodelay", kept(Form::Switch, "no")),
    (
        "repl-diskless-load",
        kept(
            Form::OneOf(&["disabled", "on-empty-db", "swapdb"]),
            "disabled",
        ),
    ),
    ("repl-diskless-sync", kept(Form::Switch, "yes")),
    ("repl-diskless-sync-delay", kept(SMALL, "5")),
    ("repl-ping-replica-period", kept(FROM_ONE, "10")),
    (
        "repl-ping-slave-period",
        Value::Alias("repl-ping-replica-period"),
    ),
    ("repl-timeout", kept(FROM_ONE, "60")),
    ("replica-announced", kept(Form::Switch, "yes")),
    ("replica-ignore-maxmemory", kept(Form::Switch, "yes")),
    ("replica-lazy-flush", kept(Form::Switch, "no")),
    ("replica-priority", kept(SMALL, "100")),
    ("replica-read-only", kept(Form::Switch, "yes")),
    ("replica-serve-stale-data", kept(Form::Switch, "yes")),
    (
        "sanitize-dump-payload",
        kept(Form::OneOf(&["no", "yes", "clients"]), "no"),
    ),
    ("save", kept(Form::Save, "")),
    (
        "slave-ignore-maxmemory",
        Value::Alias("replica-ignore-maxmemory"),
    ),
    ("slave-lazy-flush", Value::Alias("replica-lazy-flush")),
    ("slave-priority", Value::Alias("replica-priority")),
    ("slave-read-only", Value::Alias("replica-read-only")),
    (
        "slave-serve-stale-data",
        Value::Alias("replica-serve-stale-data"),
    ),
    ("stop-writes-on-bgsave-error", kept(Form::Switch, "yes")),
    ("stream-node-max-bytes", kept(BYTES, "4096")),
];
