// Lettuce, unmodified: what an application does. Arguments: port, version of the protocol.
// The first wrong answer ends it with an error.
// It prints RESTART when the server may be killed, and goes on when it reads a line.

import io.lettuce.core.ClientOptions;
import io.lettuce.core.Consumer;
import io.lettuce.core.KeyValue;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisNoScriptException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.XGroupCreateArgs;
import io.lettuce.core.XReadArgs;
import io.lettuce.core.XReadArgs.StreamOffset;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.IntStream;

public class Main {
    private static final String ADD_BELOW = """
            local now = redis.call('INCRBY', KEYS[1], ARGV[1])
            if now > tonumber(ARGV[2]) then
              redis.call('DECRBY', KEYS[1], ARGV[1])
              return -1
            end
            return now""";

    private static RedisClient client;

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

    private static void cache(RedisCommands<String, String> commands) {
        equal(commands.get("page"), null);
        equal(commands.setex("page", 100, "text"), "OK");
        equal(commands.get("page"), "text");
        holds(commands.ttl("page") > 90, "the time to live is too short");
        equal(commands.set("page", "other", SetArgs.Builder.nx()), null);
        equal(commands.mget("page", "none"),
                List.of(KeyValue.just("page", "text"), KeyValue.empty("none")));
        equal(commands.hset("user", Map.of("name", "Ada", "born", "1815")), 2L);
        equal(commands.hgetall("user"), Map.of("name", "Ada", "born", "1815"));
        equal(commands.zadd("scores", 1.5, "a", 0.5, "b"), 2L);
        equal(commands.zrange("scores", 0, -1), List.of("b", "a"));
        equal(commands.zscore("scores", "a"), 1.5);
        try {
            commands.incr("page");
            throw new AssertionError("a text was incremented");
        } catch (RedisCommandExecutionException error) {
            holds(error.getMessage().contains("not an integer"), error);
        }
        equal(commands.del("page", "user", "scores"), 3L);
    }

    private static void watchedCounter() throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int of = 0; of < 5; of++) {
            threads.add(start(() -> {
                try (StatefulRedisConnection<String, String> connection = client.connect()) {
                    RedisCommands<String, String> commands = connection.sync();
                    for (int left = 20; left > 0;) {
                        commands.watch("counter");
                        String now = commands.get("counter");
                        commands.multi();
                        int next = now == null ? 1 : Integer.parseInt(now) + 1;
                        commands.set("counter", Integer.toString(next));
                        if (!commands.exec().wasDiscarded()) {
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

    private static void bulkLoad(StatefulRedisConnection<String, String> connection) {
        List<RedisFuture<String>> replies = new ArrayList<>();
        connection.setAutoFlushCommands(false);
        for (int number = 0; number < 10_000; number++) {
            replies.add(connection.async().set("bulk:" + number, Integer.toString(number)));
        }
        connection.flushCommands();
        connection.setAutoFlushCommands(true);
        holds(LettuceFutures.awaitAll(60, TimeUnit.SECONDS, replies.toArray(RedisFuture[]::new)),
                "not all SETs were answered");
        Set<String> found = new HashSet<>();
        ScanIterator<String> keys = ScanIterator.scan(
                connection.sync(), ScanArgs.Builder.matches("bulk:*").limit(1000));
        keys.forEachRemaining(found::add);
        equal(found.size(), 10_000);
        equal(connection.sync().unlink(found.toArray(String[]::new)), 10_000L);
    }

    private static void messages(RedisCommands<String, String> commands) throws Exception {
        List<String> got = new ArrayList<>();
        CountDownLatch all = new CountDownLatch(200);
        try (StatefulRedisPubSubConnection<String, String> subscriber = client.connectPubSub()) {
            subscriber.addListener(new RedisPubSubAdapter<>() {
                @Override
                public void message(String channel, String message) {
                    got.add(channel + " " + message);
                    all.countDown();
                }

                @Override
                public void message(String pattern, String channel, String message) {
                    message(channel, message);
                }
            });
            subscriber.sync().subscribe("news");
            subscriber.sync().psubscribe("n*");
            List<String> expected = new ArrayList<>();
            for (int number = 0; number < 100; number++) {
                equal(commands.publish("news", Integer.toString(number)), 2L);
                expected.add("news " + number);
                expected.add("news " + number);
            }
            holds(all.await(60, TimeUnit.SECONDS), "messages are missing");
            equal(got, expected);
        }
    }

    private static void queue(RedisCommands<String, String> commands) throws Exception {
        List<String> got = new ArrayList<>();
        Thread consumer = start(() -> {
            try (StatefulRedisConnection<String, String> connection = client.connect()) {
                while (got.size() < 200) {
                    got.add(connection.sync().brpop(10, "jobs").getValue());
                }
                equal(connection.sync().blpop(0.05, "jobs"), null);
            }
        });
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 200; number++) {
            commands.lpush("jobs", Integer.toString(number));
            expected.add(Integer.toString(number));
        }
        consumer.join();
        equal(got, expected);
    }

    private static void streamGroup(RedisCommands<String, String> commands) throws Exception {
        commands.xgroupCreate(
                StreamOffset.latest("log"), "readers", XGroupCreateArgs.Builder.mkstream());
        Set<Integer> seen = new ConcurrentSkipListSet<>();
        List<Thread> readers = new ArrayList<>();
        for (String name : List.of("one", "two")) {
            readers.add(start(() -> {
                try (StatefulRedisConnection<String, String> connection = client.connect()) {
                    read(connection.sync(), Consumer.from("readers", name), seen);
                }
            }));
        }
        Set<Integer> expected = new TreeSet<>();
        for (int number = 0; number < 200; number++) {
            commands.xadd("log", Map.of("n", Integer.toString(number)));
            expected.add(number);
        }
        for (Thread reader : readers) {
            reader.join();
        }
        equal(seen, expected);
        equal(commands.xpending("log", "readers").getCount(), 0L);
    }

    /**
     * Reads and acknowledges what comes, until nothing comes. One at a time: of a reply in RESP2
     * that has several, this version of Lettuce loses some (seen with redis-server, too).
     */
    private static void read(
            RedisCommands<String, String> commands, Consumer<String> consumer, Set<Integer> seen) {
        XReadArgs how = XReadArgs.Builder.count(1).block(Duration.ofMillis(500));
        for (;;) {
            var entries = commands.xreadgroup(consumer, how, StreamOffset.lastConsumed("log"));
            if (entries.isEmpty()) {
                return;
            }
            for (var entry : entries) {
                int number = Integer.parseInt(entry.getBody().get("n"));
                holds(seen.add(number), number + " came twice");
                equal(commands.xack("log", "readers", entry.getId()), 1L);
            }
        }
    }

    private static Long addBelow(RedisCommands<String, String> commands, String sha1, String by) {
        String[] keys = {"limit"};
        return commands.evalsha(sha1, ScriptOutputType.INTEGER, keys, by, "5");
    }

    private static void script(RedisCommands<String, String> commands) {
        String sha1 = commands.scriptLoad(ADD_BELOW);
        equal(addBelow(commands, sha1, "3"), 3L);
        equal(addBelow(commands, sha1, "3"), -1L);
        commands.scriptFlush();
        try {
            addBelow(commands, sha1, "2");
            throw new AssertionError("a script that was removed ran");
        } catch (RedisNoScriptException error) {
            String[] keys = {"limit"};
            equal(commands.eval(ADD_BELOW, ScriptOutputType.INTEGER, keys, "2", "5"), 5L);
        }
    }

    private static void largeValues(RedisCommands<String, String> commands) {
        String large = "pando".repeat(1 << 18);
        equal(commands.set("large", large), "OK");
        equal(commands.get("large"), large);
        equal(commands.strlen("large"), (long) large.length());
        equal(commands.del("large"), 1L);
    }

    /** A client with a cache on its own side, beside another that writes. */
    private static final class Cached {
        private static final String[] KEYS =
                IntStream.range(0, 20).mapToObj(number -> "cached:" + number).toArray(String[]::new);

        private final RedisCommands<String, String> writer;
        private final Map<String, String> cache = new ConcurrentHashMap<>();
        private final StatefulRedisConnection<String, String> connection = client.connect();
        private final CacheFrontend<String, String> frontend = ClientSideCaching.enable(
                CacheAccessor.forMap(cache), connection, TrackingArgs.Builder.enabled());

        Cached(RedisCommands<String, String> writer) {
            this.writer = writer;
        }

        void write(String value) {
            for (String key : KEYS) {
                equal(writer.set(key, value), "OK");
            }
        }

        private List<String> read() {
            return Arrays.stream(KEYS).map(frontend::get).toList();
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

        private String asked() {
            return writer.info("commandstats").lines()
                    .filter(line -> line.startsWith("cmdstat_get:")).findFirst().get().split(",")[0];
        }

        /** What is read comes from the cache; what another changes does not. */
        void check(String name) throws Exception {
            for (int number = 0; number < 20; number++) {
                write(name + number);
                becomes(name + number);
            }
            String before = asked();
            becomes(name + 19);
            equal(asked(), before);
            equal(writer.del(KEYS), (long) KEYS.length);
            becomes(null);
            write("kept " + name);
            becomes("kept " + name);
        }

        /**
         * Lettuce connects again, but leaves it to the application to be told again, and to forget
         * what may be stale.
         */
        void reconnect() throws Exception {
            for (int left = 200;; left--) {
                try {
                    equal(connection.sync().clientTracking(TrackingArgs.Builder.enabled()), "OK");
                    break;
                } catch (RedisException error) {
                    holds(left > 0, error);
                    Thread.sleep(20);
                }
            }
            cache.clear();
        }
    }

    private static void restart(RedisCommands<String, String> commands) throws Exception {
        long acknowledged = commands.incr("kept");
        System.out.println("RESTART");
        AtomicBoolean restarted = new AtomicBoolean();
        start(() -> {
            holds(System.in.read() > 0, "the other side is gone");
            restarted.set(true);
        });
        for (int after = 0; after < 20;) {
            try {
                long now = commands.incr("kept");
                holds(now > acknowledged, now + " after " + acknowledged);
                acknowledged = now;
                after += restarted.get() ? 1 : 0;
            } catch (RedisException error) {
                // The connection is gone, or the server still opens its store.
                Thread.sleep(20);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        client = RedisClient.create(RedisURI.create("127.0.0.1", Integer.parseInt(arguments[0])));
        client.setOptions(ClientOptions.builder()
                .protocolVersion(arguments[1].equals("3") ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2)
                .build());
        StatefulRedisConnection<String, String> connection = client.connect();
        RedisCommands<String, String> commands = connection.sync();
        equal(commands.flushall(), "OK");
        cache(commands);
        watchedCounter();
        equal(commands.get("counter"), "100");
        bulkLoad(connection);
        messages(commands);
        queue(commands);
        streamGroup(commands);
        script(commands);
        largeValues(commands);
        boolean caches = arguments[1].equals("3");
        Cached cached = caches ? new Cached(commands) : null;
        if (caches) {
            cached.check("before");
        }
        restart(commands);
        if (caches) {
            cached.reconnect();
            cached.becomes("kept before");
            cached.write("changed");
            cached.becomes("changed");
            cached.check("after");
        }
        client.shutdown();
    }
}
