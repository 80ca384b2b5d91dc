"""`pando top` in a terminal: what is on the screen, keys, sizes, and how the terminal is left."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

import pyte
import redis

from server import PANDO, ServerTest

PATIENCE = 60


class Terminal:
    """A program in a terminal of its own, and what that terminal shows."""

    def __init__(self, command, columns=120, lines=60):
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.output = b""
        self.ours, self.theirs = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.theirs)
        environment = dict(os.environ, TERM="xterm-256color")
        self.process = subprocess.Popen(
            command, stdin=self.theirs, stdout=self.theirs, stderr=self.theirs,
            start_new_session=True, env=environment,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, columns, lines):
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, size)
        self.screen.resize(lines, columns)

    def read(self, seconds):
        ready, _, _ = select.select([self.ours], [], [], seconds)
        if ready:
            output = os.read(self.ours, 65536)
            self.output += output
            self.stream.feed(output)

    def text(self):
        return "\n".join(self.screen.display)

    def wait_for(self, test):
        deadline = time.monotonic() + PATIENCE
        while not test(self.text()):
            if time.monotonic() > deadline:
                raise AssertionError(self.text())
            self.read(0.1)

    def press(self, keys):
        os.write(self.ours, keys)

    def end(self):
        """The exit code, once the terminal is as it was before."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.1)
        if self.process.poll() is None:
            self.process.kill()
        code = self.process.wait()
        self.read(0)
        after = termios.tcgetattr(self.theirs)
        os.close(self.ours)
        os.close(self.theirs)
        assert after == self.before, "the terminal's modes are not what they were"
        assert self.output.rfind(b"\x1b[?1049l") > self.output.rfind(b"\x1b[?1049h"), "screen"
        assert self.output.rfind(b"\x1b[?25h") > self.output.rfind(b"\x1b[?25l"), "cursor"
        return code


class Top(ServerTest):
    def open(self, **size):
        port = str(self.server.port)
        return Terminal([PANDO, "top", "--port", port, "--interval", "200ms"], **size)

    def load(self):
        with redis.Redis(port=self.server.port) as r:
            for i in range(200):
                r.set(f"key:{i}", "x" * 100)
                r.get(f"key:{i}")

    def test_what_the_server_does_is_on_the_screen(self):
        terminal = self.open()
        terminal.wait_for(lambda text: "Traffic" in text)
        deadline = time.monotonic() + PATIENCE
        seen = ""
        # The first commands are on the screen before all keys are.
        wanted = ("200 keys", " get ", " set ")
        while not all(part in seen for part in wanted) and time.monotonic() < deadline:
            self.load()
            terminal.read(0.1)
            seen = terminal.text().replace("\u2502", " ")
        for part in ("PandoDB", "200 keys", "Cache", "Device", "Log", "Checkpoints", "Space",
                     "Memory", "resident", "Commands", " get ", " set ", "p99", "q: quit"):
            self.assertIn(part, seen)
        terminal.press(b"q")
        self.assertEqual(terminal.end(), 0)

    def test_sizes_and_scrolling(self):
        terminal = self.open(columns=50, lines=20)
        terminal.wait_for(lambda text: "Traffic" in text)
        self.assertNotIn("Memory", terminal.text())
        for _ in range(10):
            terminal.press(b"\x1b[6~")
        terminal.wait_for(lambda text: "Memory" in text or "Commands" in text)
        terminal.resize(140, 70)
        os.kill(terminal.process.pid, signal.SIGWINCH)
        terminal.wait_for(lambda text: "Traffic" in text and "Memory" in text)
        self.assertGreater(max(len(line.rstrip()) for line in terminal.screen.display), 120)
        for size in ((1, 1), (3, 2), (10, 5), (80, 24)):
            terminal.resize(*size)
            os.kill(terminal.process.pid, signal.SIGWINCH)
            terminal.read(0.3)
        terminal.wait_for(lambda text: "Traffic" in text)
        terminal.press(b"\x03")
        self.assertEqual(terminal.end(), 0)

    def test_a_server_that_goes_away_and_comes_back(self):
        terminal = self.open()
        terminal.wait_for(lambda text: "Traffic" in text)
        self.server.kill()
        terminal.wait_for(lambda text: "does not answer" in text)
        self.assertIn("trying again", terminal.text())
        self.assertIn("Traffic", terminal.text(), "what was known is still there")
        self.server.start()
        terminal.wait_for(lambda text: "does not answer" not in text and "q: quit" in text)
        os.kill(terminal.process.pid, signal.SIGTERM)
        self.assertEqual(terminal.end(), 0)

    def test_text_goes_on_when_the_server_comes_back(self):
        port = str(self.server.port)
        with redis.Redis(port=self.server.port) as r:
            r.ping()
        command = [PANDO, "top", "--port", port, "--interval", "100ms"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as top:
            self.assertIn("PandoDB", top.stdout.readline())
            self.server.kill()
            self.assertIn("trying again", top.stderr.readline())
            self.server.start()
            while "up 0 s" not in (line := top.stdout.readline()):
                self.assertNotEqual(line, "", "it goes on")
            # Whoever reads goes away: that is no failure.
            top.stdout.close()
            top.stderr.read()
            self.assertEqual(top.wait(timeout=PATIENCE), 0)


if __name__ == "__main__":
    unittest.main()
