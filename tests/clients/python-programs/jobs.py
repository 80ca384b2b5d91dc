"""What the programs with queues have in common: jobs are added, some of them are done by a worker in
another process, the server is killed and started again, and the rest is done.

A worker notes what it has done in a file, whose name and the server's port are in its environment."""

import collections
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

JOBS = 200
# Number of jobs that are done before the server is killed.
BEFORE = 50
# Number of jobs that a worker does at a time.
AT_A_TIME = 2

if len(sys.argv) == 2 and sys.argv[1].isdigit():
    # The program itself, not its worker.
    os.environ["SERVER_PORT"] = sys.argv[1]
    os.environ["DONE"] = tempfile.NamedTemporaryFile(delete=False).name

PORT = int(os.environ["SERVER_PORT"])


def note(number):
    """Does the job of a number."""
    # A worker that is interrupted has done something before.
    time.sleep(0.002)
    with open(os.environ["DONE"], "a") as file:
        file.write(f"{number}\n")


def restart():
    """Asks for the server to be killed, and returns when it runs again."""
    print("RESTART", flush=True)
    sys.stdin.readline()


def insist(work):
    """Calls `work` until it does not fail: what it asks for is idempotent."""
    for _ in range(600):
        try:
            return work()
        except Exception as error:
            last = error
            time.sleep(0.05)
    raise last


class Worker:
    """A worker: a script of the environment of this program. It is started again when it ends, as
    whoever runs one would do."""

    def __init__(self, *command):
        self.folder = os.path.dirname(os.path.abspath(__file__))
        script = os.path.join(os.path.dirname(sys.executable), command[0])
        self.command = [sys.executable, script, *command[1:]]
        self.process = None
        self.keep()

    def keep(self):
        if self.process is not None and self.process.poll() is None:
            return
        with open(os.environ["DONE"] + ".log", "a") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYTHONPATH": self.folder})


def end(workers):
    for worker in workers:
        # With its own processes, which would live on.
        if worker.process.poll() is None:
            os.killpg(worker.process.pid, signal.SIGKILL)
            worker.process.wait()


def done():
    with open(os.environ["DONE"]) as file:
        return collections.Counter(int(line) for line in file.read().splitlines())


def reach(count, workers):
    deadline = time.monotonic() + 60
    while len(done()) < count:
        for worker in workers:
            worker.keep()
        if time.monotonic() > deadline:
            with open(os.environ["DONE"] + ".log") as log:
                raise AssertionError(f"{len(done())} of {count} jobs are done\n{log.read()[-3000:]}")
        time.sleep(0.02)


def clean(*more):
    """Removes the files in which is noted what was done."""
    for name in ["", ".log", *more]:
        if os.path.exists(os.environ["DONE"] + name):
            os.unlink(os.environ["DONE"] + name)


class Kept:
    """Acknowledged jobs, of which none may be missing, though some may be done more than once."""

    def __init__(self, add):
        self.add = add
        self.count = 0

    def add_until(self, count):
        while self.count < count:
            insist(lambda: self.add(self.count))
            self.count += 1

    def add_while_killed(self):
        """Adds jobs, while the server is killed and started again."""
        self.add_until(self.count + 30)
        killed = threading.Thread(target=restart)
        killed.start()
        while killed.is_alive():
            self.add_until(self.count + 1)
        killed.join()
        self.add_until(self.count + 10)

    def are_done(self, workers):
        """Waits until all are done."""
        reach(self.count, workers)
        assert sorted(done()) == list(range(self.count)), done()


def do_all(add, workers, may_lose=0):
    """Adds jobs and waits until they are done; `add` adds the job of a number. Only those that were
    running when the server was killed, and so could not say that they had ended, may run twice.
    `may_lose`: how many jobs are given up by design with the connection to the server."""
    try:
        for number in range(JOBS):
            insist(lambda: add(number))
            if number == JOBS // 2:
                reach(BEFORE, workers)
                restart()
        reach(JOBS - may_lose, workers)
        # What is done again is done soon.
        time.sleep(1)
    finally:
        end(workers)
    counts = done()
    assert len(counts) >= JOBS - may_lose, counts
    again = [number for number, count in counts.items() if count > 1]
    assert len(again) <= AT_A_TIME, again
    clean()
