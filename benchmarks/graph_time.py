"""Host time of captured programs: what a launch of a graph costs, and each step of the ladder, by the number of nodes.

    python3 -m benchmarks.graph_time            on a GPU, beside the driver's own launch of the same graph
    python3 -m benchmarks.graph_time            without one: this project's own Python, on a driver that does nothing

Programs of 1, 10, 100 and 1,000 launches of one small kernel, each on what the one before has made. Times are microseconds, the
best of several rounds; the GPU is idle before each, so that none waits for work of the one before.

    replay      the same memory again: `launched`
    driver      cuGraphLaunch of that graph by itself
    pointers    other inputs: `parameters_set`, all nodes that read them
    sizes       inputs of another number of rows, which change the grid of every node: `parameters_set`
    topology    another graph is made: `instantiated`
    stream      the same program launched kernel by kernel
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from benchmarks.host_time import COLUMNS, ROWS, chain_of_kernels, relu_of_sum, stand_in_maker

NODES = (1, 10, 100, 1000)
ROUNDS = 20
STEPS = ("replay", "driver", "pointers", "sizes", "topology", "stream")


def best_of(call: Callable[[], object], settle: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Microseconds of the quickest of single calls, each on a device that has nothing to do."""
    times: list[float] = []
    for _ in range(rounds):
        settle()
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    settle()
    return min(times)


def ladder(make: Callable[[int, int], Any], settle: Callable[[], object], nodes: int) -> dict[str, float]:
    """The times of one program, each checked against the counter of its step."""
    fd = relu_of_sum()
    fd.execute([make(ROWS, COLUMNS), make(ROWS, COLUMNS)])
    pairs = [[make(ROWS, COLUMNS), make(ROWS, COLUMNS)] for _ in range(2)]
    larger = [make(ROWS + 1, COLUMNS), make(ROWS + 1, COLUMNS)]
    program = chain_of_kernels(fd.program(pairs[0]), nodes)
    captured = program.capture(pairs[0])
    found: dict[str, float] = {}

    def measured(name: str, counter: str, call: Callable[[], object]) -> None:
        for _ in range(3):
            call()
        was = captured.counters()[counter]
        found[name] = best_of(call, settle)
        assert captured.counters()[counter] == was + ROUNDS, (name, captured.counters())

    measured("replay", "launched", captured.replay)
    turns = iter(range(10**9))
    measured("pointers", "parameters_set", lambda: captured.run(pairs[next(turns) % 2]))
    measured("sizes", "parameters_set", lambda: captured.run(larger if next(turns) % 2 else pairs[0]))
    found["topology"] = best_of(lambda: program.capture(pairs[0]), settle, 5)
    found["stream"] = best_of(lambda: program.run(pairs[0]), settle)
    return found


def bare_graph_launch(make: Callable[[int, int], Any], settle: Callable[[], object], nodes: int) -> float:
    """cuGraphLaunch of a chain of as many kernels, everything prepared."""
    from benchmarks.host_time import bare_launch
    from fuser.runtime.driver import bindings

    a, b, y = (make(ROWS, COLUMNS) for _ in range(3))
    launch = bare_launch([t.data_ptr() for t in (a, b, y)], ROWS * COLUMNS)
    cuda = bindings()
    stream = _ask(cuda.cuStreamCreate(1))
    mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    _ask(cuda.cuStreamBeginCapture(stream, mode))
    for _ in range(nodes):
        launch(stream)
    graph = _ask(cuda.cuStreamEndCapture(stream))
    executable = _ask(cuda.cuGraphInstantiate(graph, 0))
    took = best_of(lambda: cuda.cuGraphLaunch(executable, stream), settle)
    cuda.cuGraphExecDestroy(executable)
    cuda.cuGraphDestroy(graph)
    cuda.cuStreamDestroy(stream)
    return took


def _ask(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if int(status):
        raise SystemExit(f"the driver answers {status}")
    return values[0] if values else None


def gpu_maker(n: int, m: int) -> Any:
    """A tensor on the GPU."""
    import torch

    return torch.randn(n, m, device="cuda")


def gpu_settle() -> None:
    """Wait until the GPU is idle."""
    import torch

    torch.cuda.synchronize()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m benchmarks.graph_time", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    asked = parser.parse_args(arguments)
    from fuser.runtime.driver import device_count

    has_gpu = device_count() > 0
    if not has_gpu:
        from benchmarks.stand_ins import idle_cuda
    print(f"{'nodes':>6s}" + "".join(f"{step:>11s}" for step in STEPS) + "   microseconds")
    with nullcontext() if has_gpu else idle_cuda() as idle:
        make, settle = (gpu_maker, gpu_settle) if has_gpu else (stand_in_maker(idle), int)
        for nodes in asked.nodes:
            found = ladder(make, settle, nodes)
            if has_gpu:
                found["driver"] = bare_graph_launch(make, settle, nodes)
            cells = (f"{found[step]:11.1f}" if step in found else f"{'-':>11s}" for step in STEPS)
            print(f"{nodes:6d}" + "".join(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
