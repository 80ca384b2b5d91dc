"""Where what the clients of other languages need is installed: below the target directory.

Each is installed once, in the exact versions that its folder names. What cannot be had, without a
network for instance, has its tests skipped."""

import os
import shutil
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", f"{HERE}/../../target"))


def run(command, **options):
    """Runs a command; what it prints is shown if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def install(command, **options):
    """Runs a command that fetches packages."""
    try:
        run(command, **options)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        raise unittest.SkipTest(f"packages cannot be had: {error}"[-2000:]) from error


def has_newest(made, sources):
    """Returns true if `made` is there, and no older than any of `sources`."""
    newest = max(os.path.getmtime(source) for source in sources)
    return os.path.exists(made) and os.path.getmtime(made) >= newest


def node(folder):
    """Installs the packages of a folder; returns the folder of a copy that finds them."""
    place = f"{TARGET}/clients/{os.path.basename(folder)}"
    os.makedirs(place, exist_ok=True)
    mark = f"{place}/installed"
    sources = [f"{folder}/package.json", f"{folder}/package-lock.json"]
    is_installed = has_newest(mark, sources)
    for name in os.listdir(folder):
        with open(f"{folder}/{name}") as source, open(f"{place}/{name}", "w") as copy:
            copy.write(source.read())
    if not is_installed:
        install(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=place)
        open(mark, "w").close()
    return place


def python(requirements):
    """Makes an environment with the packages that a file names; returns its interpreter."""
    name = os.path.basename(requirements).removesuffix(".txt")
    place = f"{TARGET}/clients/python-{name}"
    interpreter, mark = f"{place}/bin/python", f"{place}/installed"
    if not has_newest(mark, [requirements]):
        run([sys.executable, "-m", "venv", place])
        install([interpreter, "-m", "pip", "install", "--quiet", "-r", requirements])
        open(mark, "w").close()
    return interpreter


def java(folder):
    """Compiles a folder's program with the packages it names; returns the command that runs it."""
    place = f"{TARGET}/clients/{os.path.basename(folder)}"
    made, source = f"{place}/classes/Main.class", f"{folder}/Main.java"
    if not has_newest(made, [source, f"{folder}/pom.xml"]):
        packages = [
            "mvn", "--quiet", "--batch-mode", "--file", f"{folder}/pom.xml",
            "dependency:copy-dependencies", f"-DoutputDirectory={place}/packages"]
        install(packages)
        run(["javac", "-Xlint:all", "-cp", f"{place}/packages/*", "-d", f"{place}/classes", source])
    return ["java", "-cp", f"{place}/classes:{place}/packages/*", "Main"]


def has_hiredis():
    """Returns true if a program in C can be linked with hiredis."""
    if not shutil.which("cc"):
        return False
    empty = subprocess.run(
        ["cc", "-x", "c", "-o", "/dev/null", "-", "-lhiredis"],
        input="#include <hiredis/hiredis.h>\nint main(void) { return 0; }\n", text=True,
        capture_output=True)
    return empty.returncode == 0
