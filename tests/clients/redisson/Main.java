// Redisson, unmodified: locks, limits, queues, maps and topics, while the server is killed and started
// again. Argument: port. The first wrong answer ends it with an error.
// It prints RESTART when the server may be killed, and goes on when it reads a line.

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RLock;
import org.redisson.api.RMap;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RTopic;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ConstantDelay;

public class Main {
    /** After this time without renewal a lock is free. Redisson renews it three times as often. */
    private static final long WATCHDOG_MILLIS = 3000;

    private static int port;

    private static RedissonClient connect() {
        Config config = new Config();
        config.setLockWatchdogTimeout(WATCHDOG_MILLIS).setThreads(8).setNettyThreads(4);
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port)
                .setConnectionMinimumIdleSize(1).setConnectionPoolSize(24)
                .setSubscriptionConnectionMinimumIdleSize(1).setDnsMonitoringInterval(-1)
                .setRetryAttempts(100).setRetryDelay(new ConstantDelay(Duration.ofMillis(100)))
                .setReconnectionDelay(new ConstantDelay(Duration.ofMillis(100)));
        return Redisson.create(config);
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

    private static void join(List<Thread> threads) throws Exception {
        for (Thread thread : threads) {
            thread.join(60_000);
            holds(!thread.isAlive(), "somebody waits for ever");
        }
    }

    /** A counter that only the holder of a lock may change: in two steps, so that it shows if not. */
    private static final class Guarded {
        private final RedissonClient client;
        private final RLock lock;
        private final AtomicInteger inside;

        Guarded(RedissonClient client, RLock lock, AtomicInteger inside) {
            this.client = client;
            this.lock = lock;
            this.inside = inside;
        }

        /** What only one may do at a time. */
        void change() {
            equal(inside.incrementAndGet(), 1);
            var counter = client.<String>getBucket("guarded", StringCodec.INSTANCE);
            counter.set(Integer.toString(Integer.parseInt(counter.get()) + 1));
            holds(lock.isHeldByCurrentThread(), "the lock was lost");
            equal(inside.decrementAndGet(), 0);
        }
    }

    /** Threads of two clients, each of which takes the lock some times. */
    private static void contend(RedissonClient one, RedissonClient two) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        one.getBucket("guarded", StringCodec.INSTANCE).set("0");
        List<Thread> threads = new ArrayList<>();
        for (RedissonClient client : List.of(one, two, one, two)) {
            RLock lock = client.getLock("lock");
            Guarded guarded = new Guarded(client, lock, inside);
            threads.add(start(() -> {
                for (int number = 0; number < 8; number++) {
                    lock.lock();
                    lock.lock();
                    guarded.change();
                    lock.unlock();
                    lock.unlock();
                }
            }));
        }
        join(threads);
        equal(one.getBucket("guarded", StringCodec.INSTANCE).get(), "32");
        holds(!one.getLock("lock").isLocked(), "the lock is still held");
    }

    /** Those who wait for a lock that is held while the server is killed. */
    private static final class Waiting {
        private final AtomicInteger inside = new AtomicInteger();
        private final List<Integer> order = new CopyOnWriteArrayList<>();
        private final List<Thread> threads = new ArrayList<>();
        private final RLock held;
        private final RLock other;

        /** Takes the lock, and lets others wait for it, one after the other. */
        Waiting(RLock held, RLock other) throws Exception {
            this.held = held;
            this.other = other;
            held.lock();
            equal(inside.incrementAndGet(), 1);
            for (int number = 0; number < 3; number++) {
                int me = number;
                threads.add(start(() -> {
                    other.lock();
                    equal(inside.incrementAndGet(), 1);
                    order.add(me);
                    Thread.sleep(20);
                    equal(inside.decrementAndGet(), 0);
                    other.unlock();
                }));
                Thread.sleep(150);
            }
        }

        void isExclusive() {
            holds(held.isHeldByCurrentThread(), "the lock was lost");
            holds(!other.tryLock(), "two have the lock");
            equal(order, List.of());
        }

        /** Lets the others go, and returns the order in which they had the lock. */
        List<Integer> release() throws Exception {
            equal(inside.decrementAndGet(), 0);
            held.unlock();
            join(threads);
            equal(order.size(), 3);
            return order;
        }
    }

    private static void limit(RRateLimiter limiter) {
        holds(limiter.trySetRate(RateType.OVERALL, 5, Duration.ofMinutes(10)), "it had a rate");
        equal(limiter.tryAcquire(3), true);
        equal(limiter.tryAcquire(3), false);
        equal(limiter.tryAcquire(2), true);
        equal(limiter.tryAcquire(), false);
    }

    private static void queue(RedissonClient one, RedissonClient two) throws Exception {
        List<Integer> got = new ArrayList<>();
        List<Integer> expected = new ArrayList<>();
        RBlockingQueue<Integer> taken = two.getBlockingQueue("queue");
        Thread consumer = start(() -> {
            while (got.size() < 100) {
                got.add(taken.poll(10, TimeUnit.SECONDS));
            }
        });
        RBlockingQueue<Integer> filled = one.getBlockingQueue("queue");
        for (int number = 0; number < 100; number++) {
            filled.put(number);
            expected.add(number);
        }
        join(List.of(consumer));
        equal(got, expected);
    }

    /** Puts what it counts into a map and a queue until it is told to end; each is acknowledged. */
    private static Thread write(RedissonClient client, AtomicInteger written, AtomicBoolean end) {
        RMap<Integer, String> map = client.getMap("map");
        RBlockingQueue<Integer> queue = client.getBlockingQueue("written");
        return start(() -> {
            while (!end.get()) {
                int number = written.get();
                try {
                    map.put(number, "text " + number);
                    holds(queue.offer(number), "not added");
                    written.incrementAndGet();
                } catch (RedisException error) {
                    // It does not repeat by itself what might have been done.
                    Thread.sleep(20);
                }
            }
        });
    }

    private static void reach(AtomicInteger written, int count) throws Exception {
        while (written.get() < count) {
            Thread.sleep(1);
        }
    }

    private static void isWritten(RedissonClient client, int written) {
        // The one after the last, which was not acknowledged, may be there.
        Map<Integer, String> map = client.<Integer, String>getMap("map").readAllMap();
        holds(map.size() <= written + 1, map.size() + " for " + written);
        for (int number = 0; number < written; number++) {
            equal(map.get(number), "text " + number);
        }
        // One whose acknowledgement was lost is added again.
        List<Integer> queue = client.<Integer>getBlockingQueue("written").readAll();
        holds(queue.size() <= written + 2, queue.size() + " for " + written);
        List<Integer> expected = IntStream.range(0, written).boxed().toList();
        equal(queue.stream().distinct().limit(written).toList(), expected);
    }

    /** Sends messages that a listener must get in their order, none twice. */
    private static void messages(RTopic to, List<Integer> got, int first) throws Exception {
        List<Integer> expected = new ArrayList<>(got);
        for (int number = first; number < first + 50; number++) {
            equal(to.publish(number), 1L);
            expected.add(number);
        }
        for (int left = 500; got.size() < expected.size() && left > 0; left--) {
            Thread.sleep(10);
        }
        equal(got, expected);
    }

    private static void restart() throws Exception {
        System.out.println("RESTART");
        holds(System.in.read() > 0, "the other side is gone");
    }

    private static void run() throws Exception {
        RedissonClient one = connect();
        RedissonClient two = connect();
        contend(one, two);
        queue(one, two);
        limit(one.getRateLimiter("limiter"));
        List<Integer> got = new CopyOnWriteArrayList<>();
        two.getTopic("topic").addListener(Integer.class, (channel, message) -> got.add(message));
        messages(one.getTopic("topic"), got, 0);

        Waiting plain = new Waiting(one.getLock("held"), two.getLock("held"));
        Waiting fair = new Waiting(one.getFairLock("fair"), two.getFairLock("fair"));
        CountDownLatch item = new CountDownLatch(1);
        // It waits at an empty queue while the server is killed.
        start(() -> {
            equal(two.<String>getBlockingQueue("empty").take(), "at last");
            item.countDown();
        });
        AtomicInteger written = new AtomicInteger();
        AtomicBoolean end = new AtomicBoolean();
        Thread writer = write(one, written, end);
        reach(written, 100);
        restart();

        // The time after which locks that nobody renews are free.
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(WATCHDOG_MILLIS * 5 / 4);
        while (System.nanoTime() < until) {
            plain.isExclusive();
            fair.isExclusive();
            Thread.sleep(50);
        }
        reach(written, written.get() + 50);
        end.set(true);
        join(List.of(writer));
        isWritten(one, written.get());
        equal(two.getRateLimiter("limiter").tryAcquire(), false);
        plain.release();
        equal(fair.release(), List.of(0, 1, 2));
        one.<String>getBlockingQueue("empty").put("at last");
        holds(item.await(60, TimeUnit.SECONDS), "what waits at a queue gets nothing");
        messages(one.getTopic("topic"), got, 50);
        contend(one, two);
        one.shutdown();
        two.shutdown();
        System.exit(0);
    }

    public static void main(String[] arguments) {
        port = Integer.parseInt(arguments[0]);
        start(Main::run);
    }
}
