"""Work items in worker processes that may die: a kernel that hangs or faults costs its item, and the rest goes on.

A worker is started with the names of its items and prints a line `@@{"name": ..., ...}` for each one done, in any order
it likes, and may print lines of other names. It ends with exit code 3 after reporting an item that left the GPU in a
state that cannot be used.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import IO, Any

MARK = "@@"
SPOILED = 3
"""Exit code of a worker whose GPU context is lost."""


def report(name: str, **found: Any) -> None:
    """Called by a worker: an item is done."""
    print(MARK + json.dumps({"name": name, **found}), flush=True)


def is_spoiled() -> bool:
    """Whether the CUDA context of this process can no longer be used."""
    import torch

    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").add_(1).item()
    except Exception:
        return True
    return False


def supervise(module: str, arguments: Sequence[str], names: Sequence[str], timeout: float) -> Iterator[dict[str, Any]]:
    """What workers report, as they do; `{"name": ..., "lost": why}` for an item that took its worker with it.

    `python -m module *arguments --worker` is given the names on standard input, one a line. `timeout` is in seconds, from
    one report to the next.
    """
    left = list(names)
    silent = 0
    while left:
        worker = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write("\n".join(left) + "\n")
        worker.stdin.close()
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        reader = threading.Thread(target=_forward, args=(worker.stdout, lines), daemon=True)
        reader.start()
        before, reports = len(left), 0
        why = ""
        while True:
            try:
                line = lines.get(timeout=timeout)
            except queue.Empty:
                why = f"nothing for {timeout:g} s"
                worker.kill()
                break
            if line is None:
                break
            if not line.startswith(MARK):
                print(line, end="", flush=True)
                continue
            reports += 1
            found = json.loads(line[len(MARK) :])
            if found["name"] in left:
                left.remove(found["name"])
            yield found
        code = worker.wait()
        reader.join()
        if left and (code != SPOILED or len(left) == before):
            yield {"name": left.pop(0), "lost": why or f"its process ended with code {code}"}
        silent = 0 if reports else silent + 1
        if silent == 2:
            # Not the items' fault: workers do not even start.
            while left:
                yield {"name": left.pop(0), "lost": f"workers end with code {code} before they begin"}


def _forward(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(None)
