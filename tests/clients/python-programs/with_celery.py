"""Celery, unmodified: tasks with results, retries, times, groups and chords; then kills of the server,
with the settings with which it is documented to lose nothing: tasks are acknowledged late, and come
again after the visibility timeout.

It takes a message with BRPOP, and notes only then that it has it: what is between the two when the
server is killed is lost, and once in a while the worker fetches nothing any more. Both were seen beside
a redis-server that syncs always. So the server is killed when nothing can be there: while no worker
runs, and while one has as many tasks as it may."""

import os
import time

import celery

import jobs

# A file that is there once the server was killed.
KILLED = os.environ["DONE"] + ".killed"
URL = f"redis://127.0.0.1:{jobs.PORT}/0"
app = celery.Celery("with_celery", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": 2, "unacked_restore_interval": 1, "unacked_restore_throttle": 1},
)


@app.task(ignore_result=True)
def job(number):
    jobs.note(number)


@app.task(ignore_result=True)
def long_job(number):
    # Noted first, so that it is known that it runs.
    jobs.note(number)
    while not os.path.exists(KILLED):
        time.sleep(0.01)


@app.task
def double(number):
    return number * 2


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=5)
def fails_at_first(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return "at last"


@app.task
def now():
    return time.time()


def usual():
    assert double.delay(21).get(timeout=30) == 42
    sent = time.time()
    late = now.apply_async(countdown=1)
    retried = fails_at_first.delay()
    group = celery.group(double.s(number) for number in range(20))()
    chord = celery.chord(double.s(number) for number in range(20))(total.s())
    chain = celery.chain(double.s(1), double.s(), double.s())()
    assert group.get(timeout=30) == [2 * number for number in range(20)]
    assert chord.get(timeout=30) == sum(2 * number for number in range(20))
    assert chain.get(timeout=30) == 8
    assert retried.get(timeout=30) == "at last"
    assert late.get(timeout=30) - sent >= 1


def worker():
    return jobs.Worker(
        "celery", "--app", "with_celery", "worker", "--loglevel", "INFO", "--without-gossip",
        "--without-mingle", "--concurrency", str(jobs.AT_A_TIME))


def main():
    workers = [worker()]
    try:
        usual()
        jobs.end(workers)
        kept = jobs.Kept(lambda number: job.delay(number))
        kept.add_while_killed()
        workers[:] = [worker()]
        kept.are_done(workers)
        # The worker has all that it may, and fetches nothing.
        kept.add = lambda number: long_job.delay(number)
        kept.add_until(kept.count + jobs.AT_A_TIME)
        kept.are_done(workers)
        kept.add = lambda number: job.delay(number)
        kept.add_while_killed()
        open(KILLED, "w").close()
        kept.are_done(workers)
    finally:
        jobs.end(workers)
        jobs.clean(".killed")


if __name__ == "__main__":
    # A task's name begins with its module's, which the worker must know, too.
    import with_celery
    with_celery.main()
