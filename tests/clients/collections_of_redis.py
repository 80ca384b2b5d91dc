"""Random commands of hashes, lists, sets, sorted sets and places, for a comparison with Redis."""

LONG = b"x" * 70


class Collections:
    """Families of commands; what a class with `pick`, `number` and `random` is mixed with."""

    def of(self, name):
        """A key of this type, or now and then of another one."""
        if self.random.random() < 0.04:
            return self.pick("m1", "l1", "s1", "z1", "a", "none")
        return self.pick(name + "1", name + "1", name + "2", name + "3")

    def element(self):
        r = self.random
        kind = r.randrange(12)
        if kind < 6:
            return r.randrange(30)
        if kind < 10:
            return r.choice("abcdefgh")
        return self.pick("", LONG, b"\xfe\xff", "1.5", "-3", "01", "9223372036854775807")

    def elements(self, most=4):
        count = self.random.randrange(200) if self.random.random() < 0.03 else self.random.randint(1, most)
        return [self.element() for _ in range(count)]

    def little(self):
        return self.pick(0, 1, 2, 3, -1, -2, 5, 100, self.number())

    def score(self):
        if self.random.random() < 0.1:
            return self.pick("inf", "-inf", "+inf", "nan", "x", "", "0x10", "3.0")
        return self.pick(self.random.randrange(-5, 6), self.random.randrange(100) / 8)

    def hashes(self):
        key = self.of("m")
        pairs = [word for _ in range(self.random.randint(1, 3)) for word in (self.element(), self.element())]
        return self.pick(
            ["HSET", key, *pairs], ["HSET", key, *pairs], ["HMSET", key, *pairs],
            ["HSET", key, *pairs, "more"],
            ["HSETNX", key, self.element(), self.element()],
            ["HDEL", key, *self.elements(12)],
            ["HGET", key, self.element()],
            ["HMGET", key, *self.elements(12)],
            ["HGETALL", key], ["HKEYS", key], ["HVALS", key], ["HLEN", key],
            ["HSTRLEN", key, self.element()],
            ["HEXISTS", key, self.element()],
            ["HINCRBY", key, self.element(), self.number()],
            ["HINCRBYFLOAT", key, self.element(), self.pick(1, 0.5, -3, "x", 100)],
        )

    def lists(self):
        key, other = self.of("l"), self.of("l")
        side = lambda: self.pick("LEFT", "RIGHT", "left", "what" if self.random.random() < 0.1 else "right")
        return self.pick(
            ["RPUSH", key, *self.elements()], ["LPUSH", key, *self.elements()],
            ["RPUSHX", key, *self.elements()], ["LPUSHX", key, *self.elements()],
            [self.pick("LPOP", "RPOP"), key],
            [self.pick("LPOP", "RPOP"), key, self.little()],
            ["LLEN", key], ["LRANGE", key, self.little(), self.little()],
            ["LINDEX", key, self.little()], ["LSET", key, self.little(), self.element()],
            ["LINSERT", key, self.pick("BEFORE", "AFTER", "what"), self.element(), self.element()],
            ["LREM", key, self.little(), self.element()],
            ["LTRIM", key, self.pick(0, 0, 1, -20), self.pick(-1, -1, -2, 20, self.little())],
            ["LPOS", key, self.element(), *self.pick([], ["RANK", self.little()], ["COUNT", self.little()],
             ["MAXLEN", self.little()], ["RANK", self.little(), "COUNT", 0, "MAXLEN", 5])],
            ["LMOVE", key, other, side(), side()],
            ["RPOPLPUSH", key, other],
            ["LMPOP", self.pick(1, 2, 2, 0, "x"), key, other, side(), *self.pick([], ["COUNT", self.little()])],
        )

    def sets(self):
        key, other, more = self.of("s"), self.of("s"), self.of("s")
        name = self.pick("SINTER", "SUNION", "SDIFF")
        return self.pick(
            ["SADD", key, *self.elements()], ["SADD", key, *self.elements()],
            ["SREM", key, *self.elements(12)],
            ["SCARD", key], ["SMEMBERS", key], ["SISMEMBER", key, self.element()],
            ["SMISMEMBER", key, *self.elements()],
            ["SMOVE", key, other, self.element()],
            [name, key, other], [name, key, other, more],
            [name + "STORE", more, key, other],
            ["SINTERCARD", self.pick(1, 2, 2, 3, 0, "x"), key, other,
             *self.pick([], ["LIMIT", self.little()])],
            ["SPOP", key, 1000], ["SPOP", key, self.pick(0, -1, "x")],
        )

    def scored(self):
        return [word for _ in range(self.random.randint(1, 4)) for word in (self.score(), self.element())]

    def bound(self):
        return self.pick("-inf", "+inf", f"({self.random.randrange(10)}", self.random.randrange(-5, 12), "x")

    def place(self):
        return self.pick("-", "+", "[a", "(c", "[f", "(1", "x", "[")

    def limit(self):
        return self.pick([], [], ["LIMIT", self.little(), self.little()])

    def ranges(self):
        # All scores are equal in one of them: else ranges of members are not defined.
        key, equal = self.of("z"), "e1"
        scores, rev = self.pick([], ["WITHSCORES"]), self.pick([], ["REV"])
        low, high = self.pick((self.bound(), self.bound()), (-5, "+inf"))
        of_score = [low, high, "BYSCORE"]
        return self.pick(
            ["ZRANGE", key, self.little(), self.little(), *rev, *scores],
            ["ZRANGE", key, *of_score, *rev, *self.limit(), *scores],
            ["ZRANGE", equal, self.place(), self.place(), "BYLEX", *rev, *self.limit()],
            ["ZRANGESTORE", self.of("z"), key, *of_score, *rev, *self.limit()],
            ["ZREVRANGE", key, self.little(), self.little(), *scores],
            ["ZRANGEBYSCORE", key, low, high, *scores, *self.limit()],
            ["ZREVRANGEBYSCORE", key, high, low, *scores, *self.limit()],
            ["ZRANGEBYLEX", equal, self.place(), self.place(), *self.limit()],
            ["ZREVRANGEBYLEX", equal, self.place(), self.place(), *self.limit()],
            ["ZADD", equal, *(word for element in self.elements() for word in (0, element))],
            ["ZCOUNT", key, low, high], ["ZLEXCOUNT", equal, self.place(), self.place()],
            ["ZREMRANGEBYSCORE", key, self.bound(), self.pick(-4, 0)],
            ["ZREMRANGEBYRANK", key, self.pick(3, 5), self.pick(4, 8, -5)],
            ["ZREMRANGEBYLEX", equal, self.pick("(f", "[c"), self.place()],
        )

    def sorted_sets(self):
        key, other = self.of("z"), self.of("z")
        options = self.random.sample(["NX", "XX", "GT", "LT", "CH"], self.pick(0, 0, 0, 1, 2))
        # Not below zero: listpacks of Redis 7.0 keep a negative zero, those of 7.2 do not.
        weights = self.pick([], ["WEIGHTS", self.pick(1, 2, 0.5, "inf", "x"), self.pick(1, 3, 0.25)])
        aggregate = self.pick([], ["AGGREGATE", self.pick("SUM", "MIN", "max", "what")])
        sources = [2, key, self.pick(other, self.of("s"))]
        name = self.pick("ZUNION", "ZINTER")
        return self.pick(
            ["ZADD", key, *options, *self.scored()], ["ZADD", key, *self.scored()],
            ["ZADD", key, *options, "INCR", self.score(), self.element()],
            ["ZREM", key, *self.elements(12)], ["ZCARD", key],
            ["ZSCORE", key, self.element()], ["ZMSCORE", key, *self.elements()],
            ["ZINCRBY", key, self.score(), self.element()],
            [self.pick("ZRANK", "ZREVRANK"), key, self.element()],
            [self.pick("ZPOPMIN", "ZPOPMAX"), key, *self.pick([], [self.little()])],
            ["ZMPOP", self.pick(1, 2, 2, 0), key, other, self.pick("MIN", "MAX"),
             *self.pick([], ["COUNT", self.little()])],
            [name, *sources, *weights, *aggregate, *self.pick([], ["WITHSCORES"])],
            [name + "STORE", self.of("z"), *sources, *weights, *aggregate],
            ["ZDIFF", *sources, *self.pick([], ["WITHSCORES"])],
            ["ZDIFFSTORE", self.of("z"), *sources],
            ["ZINTERCARD", *sources, *self.pick([], ["LIMIT", self.little()])],
        )

    def places(self):
        # Scores that are no places, as a sorted set may have them, are not defined here.
        key = self.pick("g1", "g2", "g3")
        # No two are equally far from a third.
        longitude, latitude = (round(self.random.uniform(-8, 8), 4) for _ in range(2))
        shape = self.pick(["BYRADIUS", 300, "km"], ["BYBOX", 400, 300, "km"], ["BYRADIUS", 10, "what"])
        center = self.pick(["FROMMEMBER", self.element()], ["FROMLONLAT", longitude, latitude])
        order = self.pick(["ASC"], ["DESC"], ["ASC", "COUNT", self.little()])
        shown = self.pick([], ["WITHDIST"], ["WITHHASH"], ["WITHCOORD"])
        return self.pick(
            ["GEOADD", key, longitude, latitude, self.element()],
            ["GEOADD", key, longitude, latitude, self.element(), latitude, longitude, self.element()],
            ["GEOADD", key, self.pick("NX", "XX", "CH"), longitude, latitude, self.element()],
            ["GEOADD", key, 181, latitude, self.element()],
            ["GEOPOS", key, *self.elements()], ["GEOHASH", key, *self.elements()],
            ["GEODIST", key, self.element(), self.element(), *self.pick([], ["km"], ["ft"], ["what"])],
            ["GEOSEARCH", key, *center, *center, *shape, *order, *shown],
            ["GEOSEARCHSTORE", self.pick("g2", "g3"), key, *center, *shape, *order],
        )

    def sorting(self):
        key = self.pick(self.of("l"), self.of("z"))
        # Texts of the same weight have no order, numbers have that of the elements.
        words = [self.pick("SORT", "SORT_RO"), key, *self.pick(["BY", "m*->a"], ["ALPHA"], ["ALPHA"])]
        for _ in range(self.random.randrange(3)):
            words += self.pick(["DESC"], ["ASC"], ["LIMIT", self.little(), self.little()], ["GET", "#"],
                               ["GET", "m*->a"])
        # Sets that are not sorted have no order, unless the result is stored.
        return words + self.pick([], [], ["STORE", "l3"], ["BY", "nothing", "STORE", "l3"])

    def collection_keys(self):
        one, two = self.of(self.pick("m", "l", "s", "z")), self.of(self.pick("m", "l", "s", "z"))
        same = one[0] if one != "none" else "m"
        return self.pick(
            ["TYPE", one], ["EXISTS", one, two], ["EXPIRE", one, 1000], ["PERSIST", one],
            ["RENAME", same + "1", same + "2"], ["COPY", one, same + "3", "REPLACE"],
            ["DEL", two] if self.random.random() < 0.3 else ["STRLEN", one],
            ["SET", one, "x"] if self.random.random() < 0.05 else ["GET", two],
        )


def sorted_reply(words, reply):
    """The reply in an order of its own where Redis has none."""
    name = words[0].upper()
    if not isinstance(reply, list) or not isinstance(reply[1], list):
        return reply
    kind, items = reply
    if name in (b"SMEMBERS", b"SINTER", b"SUNION", b"SDIFF", b"SPOP", b"HKEYS", b"HVALS"):
        return [kind, sorted(items)]
    if name == b"HGETALL":
        return [kind, sorted(zip(items[::2], items[1::2]))]
    return reply


def whole():
    """Commands that show all of the collections."""
    commands = []
    for number in b"1", b"2", b"3":
        commands += [
            [b"HGETALL", b"m" + number], [b"LRANGE", b"l" + number, b"0", b"-1"],
            [b"SMEMBERS", b"s" + number], [b"ZRANGE", b"z" + number, b"0", b"-1", b"WITHSCORES"],
            [b"ZRANGE", b"g" + number, b"0", b"-1", b"WITHSCORES"],
        ]
    return commands + [[b"ZRANGE", b"e1", b"0", b"-1"]]
