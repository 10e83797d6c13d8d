"""Processes that read and write one disk cache at once, damage it, fill it up, and are killed.

    python -m tests.end_to_end.cache_torture [--processes 8] [--kernels 200] [--seconds 60] [--nvrtc]

What must hold: a read gives the right value or none, nothing is ever raised, and every miss has a reason. Values are made up
from their keys; with `--nvrtc` they are compiled, which takes longer and goes the way of users' kernels.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fuser.runtime.cache.disk_cache import DiskCache, digest_of
from fuser.runtime.kernels import nvrtc
from fuser.runtime.kernels.compiled_kernel import Resources
from fuser.runtime.kernels.nvrtc import BINARY_FILE, CompileResult

LIMIT = 400_000  # bytes, less than all kernels together need
WRONG = 3  # exit code


def key_of(kernel: int) -> str:
    return digest_of([f"kernel {kernel}"])


def value_of(kernel: int) -> CompileResult:
    """Different for each, and of different lengths."""
    rng = random.Random(kernel)
    name = f"k{kernel}"
    binary = rng.randbytes(200 + rng.randrange(9000))
    return CompileResult(binary, {name: Resources(kernel, 0, 0, 0)}, {name: name}, f"log of {name}", (12, 9), "sm_90a")


def source_of(kernel: int) -> str:
    return f'extern "C" __global__ void k{kernel}(float* y) {{ y[threadIdx.x] = {kernel}.0f; }}'


def damage(folder: Path, rng: random.Random) -> str:
    """Do something to the cache that no process of ours would."""
    files = [p for p in folder.glob("*/*/*") if p.is_file()]
    if not files:
        return "nothing there"
    path, other = rng.choice(files), rng.choice(files)
    how = rng.choice(["cut", "empty", "flip", "version", "exchange", "clock", "delete", "folder", "shard", "longer"])
    match how:
        case "cut":
            os.truncate(path, rng.randrange(path.stat().st_size + 1))
        case "empty":
            path.write_bytes(b"")
        case "flip":
            data = bytearray(path.read_bytes())
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
        case "version":
            path.write_bytes(path.read_bytes().replace(b" 1 ", b" 2 ", 1))
        case "exchange":
            shutil.copyfile(other, path)
        case "clock":
            then = rng.choice([0.0, time.time() + 1e8, time.time() - 1e7])
            os.utime(path, (then, then))
        case "delete":
            path.unlink()
        case "folder":
            path.unlink()
            path.mkdir()
        case "shard":
            shutil.rmtree(path.parent)
        case _:
            path.write_bytes(path.read_bytes() + b"more")
    return how


class _Reasons(logging.Handler):
    """Counts the messages of the project's logger."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.getMessage().startswith("the disk cache has no ")


def work(folder: Path, seed: int, kernels: int, seconds: float, compiled: bool) -> int:
    """One process. Prints what it did."""
    rng = random.Random(seed)
    done: Counter[str] = Counter()
    reasons = _Reasons()
    logger = logging.getLogger("fuser")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(reasons)
    logger.propagate = False
    cache = DiskCache(folder, LIMIT)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kernel = rng.randrange(kernels)
        action = rng.random()
        # The file system is full from the given byte of a file on, for a while.
        room = rng.choice([0, 50, 300, 4000]) if action < 0.1 else resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        if compiled:
            made = nvrtc.compile_to_cubin(source_of(kernel), (f"k{kernel}",), "sm_90a")
            if f".text.k{kernel}\0".encode() not in made.cubin or list(made.resources) != [f"k{kernel}"]:
                print(f"WRONG: kernel {kernel} got {made!r}")
                return WRONG
        else:
            found = cache.read(BINARY_FILE, key_of(kernel))
            if found is None:
                cache.write(BINARY_FILE, key_of(kernel), value_of(kernel))
            elif found != value_of(kernel):
                print(f"WRONG: kernel {kernel} got {found!r}")
                return WRONG
            done["hits" if found is not None else "misses"] += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if action > 0.97:
            cache.make_room()
        elif action > 0.9:
            # Others are at the same files.
            with contextlib.suppress(OSError):
                done[f"damage: {damage(folder, rng)}"] += 1
    counters = cache.counters()
    if not compiled and not reasons.count == sum(counters.misses.values()) == done["misses"]:
        print(f"WRONG: {done['misses']} misses, {reasons.count} reasons in the log")
        return WRONG
    done |= Counter({"writes": counters.writes, "not written": counters.failed_writes, "evicted": counters.evictions})
    print(json.dumps(done))
    return 0


def torture(
    folder: Path, *, processes: int, kernels: int, seconds: float, seed: int, compiled: bool = False
) -> Counter[str]:
    """All of it. Returns what was done; raises AssertionError where a process said that something was wrong."""
    rng = random.Random(seed)
    environment = {**os.environ, "FUSER_CACHE": "on", "FUSER_CACHE_DIR": str(folder), "FUSER_CACHE_SIZE": str(LIMIT)}
    total: Counter[str] = Counter()
    end = time.monotonic() + seconds

    def started() -> subprocess.Popen[str]:
        numbers = [rng.randrange(2**31), kernels, max(0.5, end - time.monotonic())]
        command = [sys.executable, "-m", "tests.end_to_end.cache_torture", "--worker", str(folder), *map(str, numbers)]
        command += ["--nvrtc"] if compiled else []
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)

    running = [started() for _ in range(processes)]
    # Killed, and another one in its place.
    while time.monotonic() < end - 0.5:
        time.sleep(rng.uniform(0.2, 1.0) * (3 if compiled else 1))
        victim = rng.randrange(processes)
        running[victim].send_signal(signal.SIGKILL)
        output, _ = running[victim].communicate()
        assert running[victim].returncode in (0, -signal.SIGKILL), output
        total["killed"] += 1
        running[victim] = started()
    for process in running:
        output, _ = process.communicate()
        assert process.returncode == 0, output
        total += Counter(json.loads(output.splitlines()[-1]))
    cache = DiskCache(folder, LIMIT)
    cache.make_room()
    assert sum(e.nbytes for e in cache.entries() if e.path.is_file()) <= LIMIT
    return total


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--worker"]:
        folder, seed, kernels, seconds, *rest = arguments[1:]
        return work(Path(folder), int(seed), int(kernels), float(seconds), rest == ["--nvrtc"])
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("processes", 8), ("kernels", 200), ("seconds", 60), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--nvrtc", action="store_true")
    options: Any = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        done = torture(
            Path(folder),
            processes=options.processes,
            kernels=options.kernels,
            seconds=options.seconds,
            seed=options.seed,
            compiled=options.nvrtc,
        )
    print("\n".join(f"{what:20} {count}" for what, count in sorted(done.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
