"""Dramatiq, unmodified: actors, delays, retries, results and groups; then a kill of the server in the
middle, after which each message is done that was acknowledged, as its broker promises: it moves a
message to the worker's own set while that works on it, and back when the worker is dead. A worker that
lost a reply lives on without the message, beside a redis-server, too: so it is started again."""

import os
import time

# Before its import: how long it waits for a lost server, instead of 3 s.
os.environ["dramatiq_restart_delay"] = "200"

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

import jobs

# A worker that has not been heard of for a second is dead, which every command looks after.
broker = RedisBroker(
    port=jobs.PORT, heartbeat_timeout=1000, maintenance_chance=1_000_000)
backend = RedisBackend(port=jobs.PORT)
broker.add_middleware(Results(backend=backend))
dramatiq.set_broker(broker)


@dramatiq.actor
def job(number):
    jobs.note(number)


@dramatiq.actor(store_results=True)
def double(number):
    return number * 2


@dramatiq.actor(store_results=True, min_backoff=100, max_backoff=200, max_retries=5)
def fails_at_first(name):
    if broker.client.incr(name) < 3:
        raise ValueError("not yet")
    return "at last"


@dramatiq.actor(store_results=True)
def now():
    return time.time()


def usual():
    assert double.send(21).get_result(block=True, timeout=20_000) == 42
    group = dramatiq.group(double.message(number) for number in range(20)).run()
    assert list(group.get_results(block=True, timeout=20_000)) == [2 * n for n in range(20)]
    pipeline = dramatiq.pipeline([double.message(1), double.message(), double.message()]).run()
    assert pipeline.get_result(block=True, timeout=20_000) == 8
    sent = time.time()
    late = now.send_with_options(delay=500)
    retried = fails_at_first.send("tries")
    assert late.get_result(block=True, timeout=20_000) - sent >= 0.5
    assert retried.get_result(block=True, timeout=20_000) == "at last"
    assert broker.client.get("tries") == b"3"


def worker():
    return jobs.Worker(
        "dramatiq", "with_dramatiq", "--processes", "1", "--threads", str(jobs.AT_A_TIME))


def main():
    workers = [worker()]
    try:
        usual()
        kept = jobs.Kept(job.send)
        kept.add_while_killed()
        jobs.end(workers)
        workers[:] = [worker()]
        kept.are_done(workers)
    finally:
        jobs.end(workers)
        jobs.clean()


if __name__ == "__main__":
    # An actor is known by its module to the worker, which must be the same here.
    import with_dramatiq
    with_dramatiq.main()
