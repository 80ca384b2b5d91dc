// Jedis, unmodified: what an application does. Arguments: port, version of the protocol.
// The first wrong answer ends it with an error.
// It prints RESTART when the server may be killed, and goes on when it reads a line.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.IntStream;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.DefaultJedisSocketFactory;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.csc.Cache;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.csc.CacheConnection;
import redis.clients.jedis.csc.CacheFactory;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.exceptions.JedisNoScriptException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.XReadGroupParams;

public class Main {
    private static final String ADD_BELOW = """
            local now = redis.call('INCRBY', KEYS[1], ARGV[1])
            if now > tonumber(ARGV[2]) then
              redis.call('DECRBY', KEYS[1], ARGV[1])
              return -1
            end
            return now""";

    private static int port;
    private static RedisProtocol protocol;

    private static Jedis connect() {
        return new Jedis(new HostAndPort("127.0.0.1", port), DefaultJedisClientConfig.builder()
                .protocol(protocol).socketTimeoutMillis(60_000).build());
    }

    private static void equal(Object got, Object expected) {
        if (!Objects.equals(got, expected)) {
            throw new AssertionError(got + " is not " + expected);
        }
    }

    private static void holds(boolean condition, Object what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    /** Work that may fail in another thread. */
    private interface Work {
        void run() throws Exception;
    }

    /** Runs work in a thread; what fails in it fails the program. */
    private static Thread start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable error) {
                error.printStackTrace();
                System.exit(1);
            }
        });
        thread.start();
        return thread;
    }

    private static void cache(Jedis client) {
        equal(client.get("page"), null);
        equal(client.setex("page", 100, "text"), "OK");
        equal(client.get("page"), "text");
        holds(client.ttl("page") > 90, "the time to live is too short");
        equal(client.set("page", "other", SetParams.setParams().nx()), null);
        equal(client.mget("page", "none"), java.util.Arrays.asList("text", null));
        equal(client.hset("user", Map.of("name", "Ada", "born", "1815")), 2L);
        equal(client.hgetAll("user"), Map.of("name", "Ada", "born", "1815"));
        equal(client.zadd("scores", Map.of("a", 1.5, "b", 0.5)), 2L);
        equal(client.zrange("scores", 0, -1), List.of("b", "a"));
        equal(client.zscore("scores", "a"), 1.5);
        try {
            client.incr("page");
            throw new AssertionError("a text was incremented");
        } catch (JedisDataException error) {
            holds(error.getMessage().contains("not an integer"), error);
        }
        equal(client.del("page", "user", "scores"), 3L);
    }

    private static void watchedCounter() throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int of = 0; of < 5; of++) {
            threads.add(start(() -> {
                try (Jedis client = connect()) {
                    for (int left = 20; left > 0;) {
                        client.watch("counter");
                        String now = client.get("counter");
                        Transaction transaction = client.multi();
                        int next = now == null ? 1 : Integer.parseInt(now) + 1;
                        transaction.set("counter", Integer.toString(next));
                        if (transaction.exec() != null) {
                            left--;
                        }
                    }
                }
            }));
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static void bulkLoad(Jedis client) {
        Pipeline pipeline = client.pipelined();
        for (int number = 0; number < 10_000; number++) {
            pipeline.set("bulk:" + number, Integer.toString(number));
        }
        for (Object reply : pipeline.syncAndReturnAll()) {
            equal(reply, "OK");
        }
        Set<String> found = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            var page = client.scan(cursor, new ScanParams().match("bulk:*").count(1000));
            found.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        equal(found.size(), 10_000);
        equal(client.unlink(found.toArray(String[]::new)), 10_000L);
    }

    private static void messages(Jedis client) throws Exception {
        List<String> got = new ArrayList<>();
        CountDownLatch ready = new CountDownLatch(2);
        JedisPubSub listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int count) {
                ready.countDown();
            }

            @Override
            public void onPSubscribe(String pattern, int count) {
                ready.countDown();
            }

            @Override
            public void onMessage(String channel, String message) {
                got.add(channel + " " + message);
            }

            @Override
            public void onPMessage(String pattern, String channel, String message) {
                got.add(channel + " " + message);
                if (got.size() == 200) {
                    unsubscribe();
                    punsubscribe();
                }
            }
        };
        Thread subscriber = start(() -> {
            try (Jedis connection = connect()) {
                connection.subscribe(listener, "news");
            }
        });
        while (!listener.isSubscribed()) {
            Thread.sleep(1);
        }
        listener.psubscribe("n*");
        ready.await();
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            equal(client.publish("news", Integer.toString(number)), 2L);
            expected.add("news " + number);
            expected.add("news " + number);
        }
        subscriber.join();
        equal(got, expected);
    }

    private static void queue(Jedis client) throws Exception {
        List<String> got = new ArrayList<>();
        Thread consumer = start(() -> {
            try (Jedis connection = connect()) {
                while (got.size() < 200) {
                    got.add(connection.brpop(10, "jobs").get(1));
                }
                equal(connection.blpop(0.05, "jobs"), null);
            }
        });
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 200; number++) {
            client.lpush("jobs", Integer.toString(number));
            expected.add(Integer.toString(number));
        }
        consumer.join();
        equal(got, expected);
    }

    private static void streamGroup(Jedis client) throws Exception {
        client.xgroupCreate("log", "readers", StreamEntryID.XGROUP_LAST_ENTRY, true);
        Set<Integer> seen = new ConcurrentSkipListSet<>();
        List<Thread> readers = new ArrayList<>();
        for (String name : List.of("one", "two")) {
            readers.add(start(() -> {
                try (Jedis connection = connect()) {
                    XReadGroupParams how = new XReadGroupParams().count(10).block(500);
                    var from = Map.of("log", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY);
                    for (;;) {
                        var streams = connection.xreadGroup("readers", name, how, from);
                        if (streams == null) {
                            return;
                        }
                        for (var entry : streams.get(0).getValue()) {
                            int number = Integer.parseInt(entry.getFields().get("n"));
                            holds(seen.add(number), number + " came twice");
                            equal(connection.xack("log", "readers", entry.getID()), 1L);
                        }
                    }
                }
            }));
        }
        Set<Integer> expected = new TreeSet<>();
        for (int number = 0; number < 200; number++) {
            client.xadd("log", StreamEntryID.NEW_ENTRY, Map.of("n", Integer.toString(number)));
            expected.add(number);
        }
        for (Thread reader : readers) {
            reader.join();
        }
        equal(seen, expected);
        equal(client.xpending("log", "readers").getTotal(), 0L);
    }

    private static void script(Jedis client) {
        String sha1 = client.scriptLoad(ADD_BELOW);
        equal(client.evalsha(sha1, List.of("limit"), List.of("3", "5")), 3L);
        equal(client.evalsha(sha1, List.of("limit"), List.of("3", "5")), -1L);
        client.scriptFlush();
        try {
            client.evalsha(sha1, List.of("limit"), List.of("2", "5"));
            throw new AssertionError("a script that was removed ran");
        } catch (JedisNoScriptException error) {
            equal(client.eval(ADD_BELOW, List.of("limit"), List.of("2", "5")), 5L);
        }
    }

    private static void largeValues(Jedis client) {
        byte[] large = new byte[1 << 20];
        for (int place = 0; place < large.length; place++) {
            large[place] = (byte) (place * 31 % 251);
        }
        equal(client.set("large".getBytes(), large), "OK");
        holds(java.util.Arrays.equals(client.get("large".getBytes()), large), "large");
        equal(client.strlen("large"), (long) large.length);
        equal(client.del("large"), 1L);
    }

    /** Its cache wants Redis 7.4, but needs nothing that 7.2 does not have. */
    private static final class CachedConnection extends CacheConnection {
        CachedConnection(Cache cache) {
            super(new DefaultJedisSocketFactory(new HostAndPort("127.0.0.1", port)),
                    DefaultJedisClientConfig.builder().protocol(RedisProtocol.RESP3).build(), cache);
        }

        @Override
        protected Map<String, Object> hello(byte[]... arguments) {
            Map<String, Object> server = super.hello(arguments);
            server.put("version", "7.4.0");
            return server;
        }
    }

    /** A client with a cache on its own side, beside another that writes. */
    private static final class Cached {
        private static final String[] KEYS =
                IntStream.range(0, 20).mapToObj(number -> "cached:" + number).toArray(String[]::new);

        private final Cache cache = CacheFactory.getCache(CacheConfig.builder().build());
        private UnifiedJedis client;

        static void write(Jedis writer, String value) {
            for (String key : KEYS) {
                equal(writer.set(key, value), "OK");
            }
        }

        private List<String> read() {
            try {
                client = client == null ? new UnifiedJedis(new CachedConnection(cache)) : client;
                return Arrays.stream(KEYS).map(client::get).toList();
            } catch (JedisConnectionException error) {
                client.close();
                client = null;
                return List.of();
            }
        }

        /** Waits until no value is stale: what was told is on its way. */
        void becomes(String value) throws Exception {
            List<String> expected = Collections.nCopies(KEYS.length, value);
            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
            for (List<String> got = read(); !got.equals(expected); got = read()) {
                holds(System.nanoTime() < until, got + " and not " + value);
                Thread.sleep(1);
            }
        }

        /** It learns that its connection is gone only from a command that the cache cannot answer. */
        void reconnect() {
            try {
                client.ping();
                throw new AssertionError("the connection was not lost");
            } catch (JedisConnectionException error) {
                client.close();
                client = null;
            }
        }

        private static String asked(Jedis writer) {
            return writer.info("commandstats").lines()
                    .filter(line -> line.startsWith("cmdstat_get:")).findFirst().get().split(",")[0];
        }

        /** What is read comes from the cache; what another changes does not. */
        void check(Jedis writer, String name) throws Exception {
            for (int number = 0; number < 20; number++) {
                write(writer, name + number);
                becomes(name + number);
            }
            String before = asked(writer);
            becomes(name + 19);
            equal(asked(writer), before);
            equal(writer.del(KEYS), (long) KEYS.length);
            becomes(null);
            write(writer, "kept " + name);
            becomes("kept " + name);
        }
    }

    private static void restart() throws Exception {
        Jedis client = connect();
        long acknowledged = client.incr("kept");
        System.out.println("RESTART");
        AtomicBoolean restarted = new AtomicBoolean();
        start(() -> {
            holds(System.in.read() > 0, "the other side is gone");
            restarted.set(true);
        });
        for (int after = 0; after < 20;) {
            try {
                client = client == null ? connect() : client;
                long now = client.incr("kept");
                holds(now > acknowledged, now + " after " + acknowledged);
                acknowledged = now;
                after += restarted.get() ? 1 : 0;
            } catch (JedisException error) {
                // The connection is gone, or the server still opens its store.
                if (client != null) {
                    client.close();
                }
                client = null;
                Thread.sleep(20);
            }
        }
        client.close();
    }

    public static void main(String[] arguments) throws Exception {
        port = Integer.parseInt(arguments[0]);
        protocol = arguments[1].equals("3") ? RedisProtocol.RESP3 : RedisProtocol.RESP2;
        try (Jedis client = connect()) {
            equal(client.flushAll(), "OK");
            cache(client);
            watchedCounter();
            equal(client.get("counter"), "100");
            bulkLoad(client);
            messages(client);
            queue(client);
            streamGroup(client);
            script(client);
            largeValues(client);
        }
        boolean caches = protocol == RedisProtocol.RESP3;
        Cached cached = new Cached();
        if (caches) {
            try (Jedis writer = connect()) {
                cached.check(writer, "before");
            }
        }
        restart();
        if (caches) {
            try (Jedis writer = connect()) {
                Cached.write(writer, "changed");
                cached.reconnect();
                cached.becomes("changed");
                cached.check(writer, "after");
            }
            cached.client.close();
        }
    }
}
