"""Random commands of streams, for a comparison with Redis. All IDs are explicit, so that they are the
same in both."""

STREAMS = ("x1", "x2")
GROUPS = ("g1", "g2", "")
CONSUMERS = ("alice", "bob", "", "c" * 1500)
HIGHEST = "18446744073709551615-18446744073709551615"


class Streams:
    """Families of commands; what a class with `pick`, `number` and `random` is mixed with."""

    def stream(self):
        if self.random.random() < 0.03:
            return self.pick("a", "nothing", "x3")
        return self.pick(*STREAMS)

    def group(self):
        return self.pick("g1", "g1", "g2", "") if self.random.random() < 0.97 else "nosuch"

    def consumer(self):
        return self.pick("alice", "alice", "bob", "bob", "", CONSUMERS[3])

    def stream_id(self):
        r = self.random
        if r.random() < 0.03:
            return self.pick("x", "", "-1", "1-", "1-x", "-", "+", HIGHEST, "0-0", "0", "$", ">", " 5", "05-1",
                             "18446744073709551616", "1-2-3", "(5", "1-*", "9" * 200)
        near = max(0, getattr(self, "clock", 0) - r.randrange(20)) if r.random() < 0.6 else r.randrange(60)
        return f"{near}-{r.randrange(3)}" if r.random() < 0.5 else str(near)

    def set_last(self):
        # Above what was deleted: 7.0 takes lower IDs.
        if self.random.random() < 0.6:
            return ["XSETID", self.stream(), self.pick("x", "-", "")] if self.random.random() < 0.1 else ["XLEN", "x1"]
        self.clock = max(getattr(self, "clock", 0), 60) + 2
        return ["XSETID", self.stream(), self.clock,
                *self.pick([], ["ENTRIESADDED", self.pick(500, 1, -1, "x")],
                           ["MAXDELETEDID", self.pick(self.clock, self.clock - 1, 2**40, "x")], ["what"])]

    def bound(self):
        if self.random.random() < 0.5:
            return self.pick("-", "+")
        return self.pick("", "", "(") + self.stream_id()

    def entry(self):
        return [word for _ in range(self.random.randint(1, 3)) for word in (self.element(), self.element())]

    def trimming(self):
        words = self.pick(["MAXLEN"], ["maxlen", "="], ["MINID"], ["minid", "="])
        if words[0].upper() == "MAXLEN":
            words = words + [self.pick(0, 1, 5, 20, 20, 1000, -1, "x")]
        else:
            words = words + [self.stream_id()]
        if self.random.random() < 0.05:
            words += self.pick(["LIMIT", 0], ["LIMIT", 5], ["LIMIT", -1], ["MAXLEN", 3], ["MINID", 3], ["what"])
        return words

    def count_option(self):
        return self.pick([], [], ["COUNT", self.pick(1, 2, 3, 10, 0, -1, "x" if self.random.random() < 0.1 else 5)])

    def new_id(self):
        r = self.random
        self.clock = getattr(self, "clock", 0) + r.choice((0, 0, 0, 1))
        return self.pick(f"{self.clock}-*", f"{self.clock}-*", f"{self.clock + 1}-{r.randrange(5)}",
                         self.stream_id())

    def entries(self):
        key = self.stream()
        options = [] if self.random.random() < 0.7 else self.trimming()
        if self.random.random() < 0.05:
            options = [*options, "NOMKSTREAM"]
        add = ["XADD", key, *options, self.new_id(), *self.entry()]
        if self.random.random() < 0.3:
            return self.pick(
                ["XTRIM", key, *self.trimming()],
                ["XTRIM", key, self.pick("LIMIT", "what", "MAXLEN"), self.pick(3, "x")],
                ["XADD", key, *options, self.new_id(), self.element()],
                self.set_last(),
                ["DEL", key] if self.random.random() < 0.1 else ["TYPE", key],
                ["OBJECT", "ENCODING", key],
                ["RENAME", key, self.stream()] if self.random.random() < 0.2 else ["EXISTS", key],
                ["COPY", key, self.stream(), *self.pick([], ["REPLACE"], ["DB", 1], ["DB", 1, "REPLACE"])],
                ["GET", key], ["SADD", key, 1], ["SORT", key],
                ["SET", key, 1] if self.random.random() < 0.05 else ["PERSIST", key],
            )
        ids = [self.stream_id() for _ in range(self.random.randint(1, 4))]
        # 7.0 has no lower bound for XSETID behind this one.
        return self.pick(add, add, add, ["XDEL", key, *("x" if of == HIGHEST else of for of in ids)])

    def stream_reads(self):
        key, r = self.stream(), self.random
        keys = [self.stream() for _ in range(r.randint(1, 2))]
        ids = [self.stream_id() for _ in keys]
        block = self.pick([], [], [], ["BLOCK", self.pick(1, 1, -1, "x")])
        return self.pick(
            ["XRANGE", key, self.bound(), self.bound(), *self.count_option()],
            ["XREVRANGE", key, self.bound(), self.bound(), *self.count_option()],
            ["XREAD", *self.count_option(), *block, "STREAMS", *keys, *ids],
            ["XREAD", "STREAMS", *keys, *(self.pick("$", ">", "0") for _ in keys)],
            ["XREAD", *self.pick(["NOACK"], ["GROUP", "g", "c"], ["what"], ["COUNT"]), "STREAMS", key, 0],
            ["XLEN", key],
            ["XINFO", "STREAM", key, *self.pick([], [], ["FULL"], ["FULL", "COUNT", 3], ["what"], ["FULL", "COUNT"])],
            ["XINFO", "GROUPS", key], ["XINFO", "CONSUMERS", key, self.group()],
            ["COMMAND", "GETKEYS", "XREAD", "COUNT", 1, "STREAMS", "k", "l", 1, 2],
        )

    def groups_of_streams(self):
        key, group, r = self.stream(), self.group(), self.random
        ids = [self.stream_id() for _ in range(r.randint(1, 4))]
        keys = [self.stream() for _ in range(r.randint(1, 2))]
        new = ["XREADGROUP", "GROUP", group, self.consumer(), *self.count_option(), *self.pick([], [], ["NOACK"]),
               *self.pick([], [], [], ["BLOCK", 1]), "STREAMS", *keys, *(">" for _ in keys)]
        old = ["XREADGROUP", "GROUP", group, self.consumer(), *self.count_option(), "STREAMS", key,
               self.pick(0, self.stream_id())]
        make = ["XGROUP", "CREATE", key, group, self.pick(0, "$", self.stream_id()),
                *self.pick([], ["MKSTREAM"], ["MKSTREAM"], ["ENTRIESREAD", self.pick(3, -1, -2, "x")], ["what"])]
        idle = self.pick(0, 0, 10**12, -5, "x" if r.random() < 0.1 else 0)
        claim = ["XCLAIM", key, group, self.consumer(), idle, *ids]
        for _ in range(r.randrange(3)):
            claim += self.pick(["FORCE"], ["JUSTID"], ["IDLE", 5], ["TIME", 12345], ["RETRYCOUNT", self.pick(7, -1, "x")],
                               ["LASTID", self.stream_id()], ["what"])
        take = ["XAUTOCLAIM", key, group, self.consumer(), idle, self.pick(0, "-", self.bound()),
                *self.pick([], ["JUSTID"], ["COUNT", self.pick(1, 2, 5, 0, -1, 2**60, 2**63 - 1)], ["what"])]
        pending = ["XPENDING", key, group]
        if r.random() < 0.8:
            pending += [*self.pick([], [], ["IDLE", self.pick(0, 10**12, "x")]), self.bound(), self.bound(),
                        self.pick(1, 3, 100, 0, -1), *self.pick([], [self.consumer()], ["nobody"])]
        rare = self.pick(
            ["XGROUP", "DESTROY", key, group], ["XGROUP", "DELCONSUMER", key, group, self.consumer()],
            ["XGROUP", "CREATECONSUMER", key, group, self.consumer()],
            ["XGROUP", "SETID", key, group, self.pick("$", 0, self.stream_id()),
             *self.pick([], ["ENTRIESREAD", 5], ["what"])],
            ["XGROUP", "what", key], ["XGROUP", "CREATE", key],
            ["XREADGROUP", "GROUP", group, "c", "STREAMS", key, "$"],
            ["XREADGROUP", "COUNT", 1, "NOACK", "STREAMS", key, key, ">", ">"],
        )
        return self.pick(make, new, new, new, old, claim, take, pending, pending, rare,
                         ["XACK", key, group, *ids], ["XACK", key, group, *ids])


def without_times(words, reply):
    """The reply without times, and without figures of the tree that Redis has."""
    name = words[0].upper()
    if name == b"XPENDING" and len(words) > 3 and isinstance(reply, list):
        kind, rows = reply
        return [kind, [[of, [row[0], row[1], b":idle", row[3]]] for of, row in rows]]
    if name == b"XGROUP" and words[1] == b"CREATECONSUMER" and reply in (b":0", b":1"):
        return b":any"
    if name == b"XINFO":
        return without_fields(reply)
    return reply


# Those of Redis's tree, times, and what 7.0 does not have. 7.0 makes a consumer when it gets something,
# 7.2 when it asks.
VARYING = (b"radix-tree-keys", b"radix-tree-nodes", b"idle", b"inactive", b"seen-time", b"active-time")


def without_fields(reply):
    if not isinstance(reply, list) or not isinstance(reply[1], list):
        return reply
    _, items = reply
    out, at = [], 0
    while at < len(items):
        if isinstance(items[at], list) and items[at][1] in VARYING:
            at += 2
            continue
        if items[at] == [b"$", b"consumers"] and isinstance(items[at + 1], bytes):
            at += 2
            continue
        if not is_idle(items[at]):
            out.append(without_fields(items[at]))
        at += 1
    # A pending entry: its ID, its consumer in the list of the group, when it was delivered, how often.
    if len(items) in (3, 4) and isinstance(items[0], list) and isinstance(items[-1], bytes) and isinstance(items[-2], bytes):
        out[-2] = b":time"
    return out


def is_idle(item):
    """True for a consumer that has nothing."""
    if not isinstance(item, list) or not isinstance(item[1], list) or item[1][:1] != [[b"$", b"name"]]:
        return False
    fields = item[1]
    names = [field for field in fields[::2]]
    if [b"$", b"seen-time"] in names or [b"$", b"idle"] in names:
        name = [b"$", b"pel-count"] if [b"$", b"seen-time"] in names else [b"$", b"pending"]
        return fields[fields.index(name) + 1] == b":0"
    return False


def all_streams():
    """Commands that show all of the streams."""
    commands = []
    for key in STREAMS:
        key = key.encode()
        commands += [[b"TYPE", key], [b"XRANGE", key, b"-", b"+"], [b"XREVRANGE", key, b"+", b"-", b"COUNT", b"3"],
                     [b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"], [b"XINFO", b"GROUPS", key]]
        for group in GROUPS:
            commands += [[b"XPENDING", key, group.encode()], [b"XPENDING", key, group.encode(), b"-", b"+", b"1000"]]
    return commands
