"""The redis crate of Rust, unmodified: a program of its own that checks what it is answered."""

import os
import subprocess

from server import ServerTest

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "../../target"))


class RedisRs(ServerTest):
    def test_a_rust_program(self):
        command = [
            "cargo", "run", "--quiet", "--manifest-path", f"{HERE}/redis-rs/Cargo.toml",
            "--target-dir", os.path.join(os.path.abspath(TARGET), "redis-rs"),
            "--", f"redis://127.0.0.1:{self.server.port}"]
        subprocess.run(command, check=True, timeout=600)
