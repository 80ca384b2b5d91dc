"""Celery, unmodified: tasks with results, retries, times, groups and chords; then a kill of the server
in the middle, with the settings with which it is documented to lose nothing: tasks are acknowledged
late, and come again after the visibility timeout.

It takes a message with BRPOP, and only then notes it as not acknowledged: one that is between the two
when the server is killed is lost, beside a redis-server that syncs always, too. So the server is
killed when no message can be there: while nobody works, and while the workers have as many tasks as
they may."""

import os
import time

import celery

import jobs

app = celery.Celery("with_celery", broker=f"redis://127.0.0.1:{jobs.PORT}/0")
app.conf.update(
    result_backend=f"redis://127.0.0.1:{jobs.PORT}/0",
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": 2, "unacked_restore_interval": 1, "unacked_restore_throttle": 1},
)
