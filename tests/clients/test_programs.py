"""Programs that others wrote, unmodified, each at its real work: queues of jobs, limits, caches and
messages between servers. In the middle of it the server is killed and started again: no job is lost,
and none is done again but those that were running then."""

import shutil
import unittest

import environments
from environments import HERE
from test_languages import Program


@unittest.skipUnless(shutil.which("npm"), "npm is not installed")
class NodePrograms(Program):
    def run_program(self, name):
        place = environments.node(f"{HERE}/node-programs")
        self.check_once(["node", f"{place}/{name}.js", str(self.server.port)])

    def test_bullmq(self):
        self.run_program("bullmq")

    def test_bull(self):
        self.run_program("bull")

    def test_bee_queue(self):
        self.run_program("bee-queue")

    def test_rate_limiter_flexible(self):
        self.run_program("rate-limiter")

    def test_socket_io(self):
        self.run_program("socket-io")


class PythonPrograms(Program):
    def run_program(self, name, requirements="requirements", restarts=1):
        python = environments.python(f"{HERE}/python-programs/{requirements}.txt")
        program = f"{HERE}/python-programs/with_{name}.py"
        self.check_once([python, program, str(self.server.port)], restarts)

    def test_rq(self):
        self.run_program("rq")

    def test_huey(self):
        self.run_program("huey")

    def test_arq(self):
        # It wants an older redis-py than the others.
        self.run_program("arq", "requirements-arq")

    def test_celery(self):
        self.run_program("celery", "requirements-tasks", restarts=2)

    def test_dramatiq(self):
        self.run_program("dramatiq", "requirements-tasks")

    def test_limits_django_redis_and_flask_caching(self):
        self.run_program("caches")


@unittest.skipUnless(shutil.which("ruby") and shutil.which("sidekiq"), "Sidekiq is not installed")
class RubyPrograms(Program):
    def test_sidekiq(self):
        self.check_once(["ruby", f"{HERE}/sidekiq/main.rb", str(self.server.port)], restarts=2)


@unittest.skipUnless(shutil.which("mvn"), "Maven is not installed")
class JavaPrograms(Program):
    def test_redisson(self):
        self.check_once([*environments.java(f"{HERE}/redisson"), str(self.server.port)])
