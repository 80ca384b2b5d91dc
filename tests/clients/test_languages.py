"""Clients of other languages, unmodified: each runs a program of its own, in a folder beside this
file, which does what an application does and checks every answer. In the middle of it the server is
killed and started again: nothing that was acknowledged is lost, and the client goes on."""

import os
import shutil
import subprocess
import tempfile
import threading
import unittest

import environments
from environments import HERE, TARGET
from server import ServerTest


class Program(ServerTest):
    """Runs a program that prints RESTART when the server may be killed, and goes on when it reads a
    line."""

    def check(self, command):
        """Runs a program in both protocols."""
        for protocol in ["2", "3"]:
            with self.subTest(protocol=protocol):
                self.check_once([*command, str(self.server.port), protocol])

    def check_once(self, command, restarts=1):
        """Runs a program that asks as often for a restart."""
        errors = tempfile.TemporaryFile(mode="w+")
        program = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        # A program that hangs ends with the number of a signal.
        limit = threading.Timer(180, program.kill)
        limit.start()
        output = []
        try:
            for line in program.stdout:
                if line.strip() == "RESTART":
                    self.server.kill()
                    self.server.start()
                    program.stdin.write("restarted\n")
                    program.stdin.flush()
                    restarts -= 1
                    if restarts == 0:
                        # Some end only when nothing can come any more.
                        program.stdin.close()
                else:
                    output.append(line)
            program.wait()
        finally:
            limit.cancel()
            program.kill()
            program.wait()
            program.stdin.close()
            program.stdout.close()
        with errors:
            errors.seek(0)
            shown = f"{''.join(output)}{errors.read()}"[-4000:]
        self.assertEqual(program.returncode, 0, shown)
        self.assertEqual(restarts, 0, "restarts that the program did not ask for")


@unittest.skipUnless(shutil.which("npm"), "npm is not installed")
class Node(Program):
    def test_node_redis(self):
        place = environments.node(f"{HERE}/node-redis")
        self.check(["node", f"{place}/main.js"])

    def test_ioredis(self):
        place = environments.node(f"{HERE}/ioredis")
        self.check(["node", f"{place}/main.js"])


@unittest.skipUnless(shutil.which("go"), "go is not installed")
class Go(Program):
    def test_go_redis(self):
        made = f"{TARGET}/clients/go-redis"
        environments.install(["go", "mod", "download"], cwd=f"{HERE}/go-redis")
        environments.run(["go", "build", "-o", made, "."], cwd=f"{HERE}/go-redis")
        self.check([made])


@unittest.skipUnless(environments.has_hiredis(), "a C compiler or hiredis is not installed")
class C(Program):
    def test_hiredis(self):
        made = f"{TARGET}/clients/c-hiredis"
        os.makedirs(os.path.dirname(made), exist_ok=True)
        environments.run([
            "cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", made, f"{HERE}/c-hiredis/main.c",
            "-lhiredis"])
        self.check_once([made, str(self.server.port)])


@unittest.skipUnless(shutil.which("mvn"), "Maven is not installed")
class Java(Program):
    def test_jedis(self):
        self.check(environments.java(f"{HERE}/jedis"))

    def test_lettuce(self):
        self.check(environments.java(f"{HERE}/lettuce"))
