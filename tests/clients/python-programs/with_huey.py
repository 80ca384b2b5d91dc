"""Huey, unmodified: tasks, while the server is killed and started again."""

import huey

import jobs

queue = huey.RedisHuey("jobs", port=jobs.PORT)


@queue.task()
def job(number):
    jobs.note(number)
    return number * 2


def main():
    worker = jobs.Worker("huey_consumer", "with_huey.queue", "--workers", str(jobs.AT_A_TIME))
    results = {}

    def add(number):
        results[number] = job(number)

    # It takes a task from the queue for good: what the server sends while it is killed is lost.
    jobs.do_all(add, [worker], may_lose=jobs.AT_A_TIME)
    assert results[jobs.JOBS - 1].get(blocking=True, timeout=10) == 2 * (jobs.JOBS - 1)


if __name__ == "__main__":
    # A task's name begins with its module's, which the worker must know, too.
    import with_huey
    with_huey.main()
