"""A server of its own directory and port for each test."""

import os
import signal
import subprocess
import tempfile
import unittest

PANDO = os.environ["PANDO"]


class Server:
    def __init__(self, directory, *flags):
        memory = [] if "--max-memory" in flags else ["--max-memory", "64m"]
        self.flags = ["--dir", directory, *memory, *flags]
        self.port = 0
        self.metrics = None
        self.process = None
        self.start()

    def start(self):
        listen = f"127.0.0.1:{self.port}"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PANDO_")}
        self.process = subprocess.Popen(
            [PANDO, "serve", "--listen", listen, *self.flags],
            stdout=subprocess.PIPE, text=True, env=environment)
        for line in self.process.stdout:
            if line.strip().startswith("address"):
                self.port = int(line.rsplit(":", 1)[1])
            if line.strip().startswith("metrics"):
                self.metrics = line.split()[1].removesuffix("/metrics")
            if " * Ready to accept" in line:
                return
        raise AssertionError(f"the server ended with {self.process.wait()}")

    def end(self, number):
        self.process.send_signal(number)
        code = self.process.wait(timeout=40)
        self.process.stdout.close()
        return code

    def stop(self):
        return self.end(signal.SIGTERM)

    def kill(self):
        return self.end(signal.SIGKILL)


class ServerTest(unittest.TestCase):
    """A fresh server before each test; after it, the server must stop well."""

    flags = ()

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="pando-client-test-")
        self.server = Server(self.directory.name + "/data", *self.flags)

    def tearDown(self):
        if self.server.process.poll() is None:
            self.assertEqual(self.server.stop(), 0)
        self.directory.cleanup()
