"""Planning takes what it knows of a GPU from `DeviceInfo`, and nothing else.

Two tests see that no number about hardware is left in `fuser/schedule`: one by what planning does on a device of another speed,
one by the literals in the code. The others see that plans follow the device.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import fuser
from benchmarks.case import Case
from benchmarks.cases import public_cases
from benchmarks.compile_case import compile_case
from benchmarks.everyday import everyday_cases
from benchmarks.kernel_texts import TextsOfKernels
from benchmarks.sweep_cases import sweep_cases
from fuser.host_ir.instructions.instructions import LaunchKernel
from fuser.ir.device_info import H200, DeviceInfo
from fuser.schedule.cost.estimate import total_time
from fuser.schedule.cost.inner_outer_mappings import CLUSTER
from fuser.schedule.cost.inner_outer_space import InnerOuterSpace
from fuser.schedule.cost.inner_outer_work import INNER_OUTER, two_kernel_work
from fuser.schedule.cost.inner_outer_work import inner_outer_work_of as gradient_work_of
from fuser.schedule.cost.row_mappings import RowMapping, row_mappings, row_work_of
from fuser.schedule.cost.row_space import RowSpace
from fuser.schedule.cost.scan_mappings import SCANS, ScanMapping
from fuser.schedule.scheduler import Refused
from tests.schedule.numbers_of_planning import NUMBERS
from tests.schedule.random_gradient_space import random_gradient_space
from tests.schedule.random_row_work import random_row_work
from tests.schedule.random_scan_work import random_scan_work

SCHEDULE = Path(fuser.__file__).parent / "schedule"


def texts_of(case: Case, device: DeviceInfo) -> dict[str, str]:
    """CUDA texts, parameters and host program of a case, without the reasons of parameters, which are given in microseconds."""
    recorder = TextsOfKernels()
    compile_case(case, device, with_cubin=False, recorder=recorder)
    return {name: re.sub(r"reasons=\([^()]*(\([^()]*\)[^()]*)*\)", "", text) for name, text in recorder.texts.items()}


SPEED_CASES = [*public_cases()[::5], *sweep_cases(0)[::29], *sweep_cases(2)[::31], *everyday_cases()[::23]]


@pytest.mark.in_turns
@pytest.mark.parametrize("case", SPEED_CASES, ids=[c.name for c in SPEED_CASES])
def test_a_device_that_does_all_in_twice_the_time_gets_the_same_kernels(case: Case) -> None:
    """Where a time, a rate or a latency were written into the code, it would weigh half as much there."""
    assert texts_of(case, H200.with_speed(0.5)) == texts_of(case, H200)


@dataclass(frozen=True)
class Fastest:
    """The mapping of rows that should take least time, of one kind."""

    time: float
    mapping: RowMapping


def fastest(row: RowSpace, device: DeviceInfo, kind: Callable[[RowMapping], bool] = lambda _: True) -> Fastest:
    found = (m for m in row_mappings(row, device) if kind(m))
    return min((Fastest(total_time(row_work_of(row, m, device), device), m) for m in found), key=lambda f: f.time)


@dataclass(frozen=True)
class FastestScan:
    """The mapping of scans to propose."""

    time: float
    mapping: ScanMapping


def is_group(m: RowMapping) -> bool:
    return m.groups > 0


def is_cluster(m: RowMapping) -> bool:
    return m.sharing > 1 and not m.groups


ROWS = random_row_work(random.Random(0), rows=2, length=1_000_012, is_double=False, is_misaligned=False)
DOUBLES_OF_ROWS = random_row_work(random.Random(1), rows=20, length=50_003, is_double=True, is_misaligned=True)
FEW_ROWS = random_row_work(random.Random(2), rows=2, length=65536, is_double=False, is_misaligned=False)
GRADIENT = random_gradient_space(random.Random(0), rows=16384, length=4096, itemsize=2, vector=8)
DOUBLES = random_gradient_space(random.Random(1), rows=74, length=250_003, itemsize=8, vector=1)


@dataclass(frozen=True)
class FastestGradient:
    """The first of a space's mappings."""

    mapping: Any
    time: float


def gradient(space: InnerOuterSpace, device: DeviceInfo) -> FastestGradient:
    time, m = INNER_OUTER.ranked(space, device)[0]
    return FastestGradient(m, time)


SCANS_OF_ROWS = random_scan_work(random.Random(3), inner=True, kept=93, length=251_257)

MODELS: dict[str, Callable[[DeviceInfo], Any]] = {
    "rows over the grid": lambda d: fastest(ROWS, d, is_group),
    "rows over a cluster": lambda d: fastest(replace(ROWS, rows=20, length=100_000), d, is_cluster),
    "rows of Doubles over a cluster": lambda d: fastest(DOUBLES_OF_ROWS, d, is_cluster),
    "few rows": lambda d: fastest(FEW_ROWS, d),
    "many rows": lambda d: fastest(replace(FEW_ROWS, rows=50_000, length=3072), d),
    "gradients of few rows": lambda d: gradient(replace(GRADIENT, rows=8, length=3072), d),
    "gradients of long rows of Doubles": lambda d: gradient(DOUBLES, d),
    "gradients by two kernels": lambda d: total_time(two_kernel_work(DOUBLES, d), d),
    "gradients of many rows": lambda d: gradient(GRADIENT, d),
    "scans of rows": lambda d: FastestScan(*SCANS.ranked(SCANS_OF_ROWS, d)[0]),
    "scans of columns": lambda d: FastestScan(*SCANS.ranked(replace(SCANS_OF_ROWS, inner=False, kept=8192), d)[0]),
}
TIMES = ("time", "time_us")


@pytest.mark.parametrize("model", MODELS)
def test_a_model_says_twice_the_time_for_a_device_that_does_all_in_twice_the_time(model: str) -> None:
    """And chooses the same shape: no time is written into it."""
    fast, slow = (MODELS[model](H200.with_speed(speed)) for speed in (1.0, 0.5))
    if isinstance(fast, float):
        assert slow == pytest.approx(2 * fast)
        return
    assert fast is not None
    assert not isinstance(fast, Refused)
    name = next(n for n in TIMES if hasattr(fast, n))
    assert getattr(slow, name) == pytest.approx(2 * getattr(fast, name))
    assert replace(slow, **{name: 0.0}) == replace(fast, **{name: 0.0})


def test_the_speed_of_one_thing_alone_does_change_kernels() -> None:
    """Else the test before this one would see nothing."""
    slow_memory = replace(H200, memory_bytes_per_ns=H200.memory_bytes_per_ns / 8)
    slow_grid = replace(H200, latencies=replace(H200.latencies, grid_ns=20 * H200.latencies.grid_ns))
    for device in (slow_memory, slow_grid):
        assert any(texts_of(case, device) != texts_of(case, H200) for case in SPEED_CASES)


def test_fewer_blocks_share_a_row_where_fewer_keep_memory_busy() -> None:
    slow = replace(H200, memory_bytes_per_ns=H200.memory_bytes_per_ns / 5)
    fast, few = (fastest(ROWS, device, is_group) for device in (H200, slow))
    assert few.mapping.sharing * few.mapping.groups <= fast.mapping.sharing * fast.mapping.groups
    assert few.time > fast.time


def test_no_cluster_where_a_device_has_none() -> None:
    """Of all models that choose one; and blocks of a cluster that is late had better not be."""
    old = DeviceInfo.preset("sm_80")
    assert not is_cluster(fastest(FEW_ROWS, old).mapping)
    assert is_cluster(fastest(FEW_ROWS, H200, lambda m: not m.groups).mapping)
    late = replace(H200, latencies=replace(H200.latencies, cluster_start_ns=20_000.0))
    assert not is_cluster(fastest(FEW_ROWS, late).mapping)


CLUSTERLESS = [
    c for c in (*public_cases(), *sweep_cases(0)) if "sum" in c.name or "norm" in c.name or "softmax" in c.name
][::9]


@pytest.mark.parametrize("case", CLUSTERLESS, ids=[c.name for c in CLUSTERLESS])
def test_no_kernel_has_a_cluster_where_a_device_has_none(case: Case) -> None:
    program = compile_case(case, replace(H200, max_cluster=1), with_cubin=False)
    kernels = [i.kernel for i in program.instructions if isinstance(i, LaunchKernel)]
    assert kernels
    assert all(kernel.plan is not None and kernel.plan.cluster is None for kernel in kernels)


def test_a_wait_of_the_grid_is_as_long_as_the_device_says() -> None:
    """Once at the end where blocks have rows of their own; nothing where a cluster has all."""
    late = replace(H200, latencies=replace(H200.latencies, grid_ns=H200.latencies.grid_ns + 1000))
    for space in (GRADIENT, replace(GRADIENT, rows=8, length=3072)):
        for _, m in INNER_OUTER.ranked(space, H200)[:10]:
            now, then = (gradient_work_of(space, m, device) for device in (H200, late))
            waits = then.iterations * then.exchange + then.epilogue_us - now.iterations * now.exchange - now.epilogue_us
            assert (waits < 0.5) is (m.exchange == CLUSTER)


EVERYDAY = everyday_cases()[::6]


@pytest.mark.in_turns
@pytest.mark.parametrize("case", EVERYDAY, ids=lambda c: c.name)
@pytest.mark.parametrize("preset", ["sm_80", "sm_120a"])
def test_everyday_fusions_are_planned_for_other_devices(case: Case, preset: str) -> None:
    """None is refused, and no launch asks for more than the device has. `benchmarks.resources --device sm_80 --set everyday`
    compiles all of them."""
    device = DeviceInfo.preset(preset)
    program = compile_case(case, device, with_cubin=False)
    for launch in (i for i in program.instructions if isinstance(i, LaunchKernel)):
        assert launch.kernel.arch == device.arch
        assert launch.kernel.max_block_size <= device.max_threads_per_block


# ---------------------------------------------------------------- literals

UNITS = {
    "cycles": "of an SM's clock, that a thread or warp takes: how long one is says `DeviceInfo.cycle`",
    "instructions": "that are issued, of a thread or of a warp; operations on Doubles",
    "exchanges": "waits of threads or blocks for one another, or of a block for memory, one behind the other",
    "share": "of a time, a rate or a capacity that the device has",
    "threads": "of a block or of an SM, and blocks: what is asked for, within the device's limits",
    "registers": "of a thread that generated code needs",
    "elements": "rows, elements, accesses, bytes of data: sizes of the work",
    "power": "exponent of a mean",
}
"""What a number of planning may count. None is a time, a rate or a capacity of a GPU."""

PLAIN_FLOATS = {0.0, 0.5, 1.0, 2.0, 1e3}
PLAIN_INTS = {*range(65), 128, 256, 512, 1000, 1024}
"""Powers of two up to the threads of a block, and what counts loops and dims; thousands turn nanoseconds into microseconds."""


def numbers_of(source: str) -> Iterator[tuple[str, float]]:
    """(name of the constant of a module, or `-` within a function; value) of numbers that are not plain."""
    tree = ast.parse(source)
    names: dict[int, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            pairs = _pairs(node.targets[0], node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs = _pairs(node.target, node.value)
        else:
            continue
        for name, value in pairs:
            names.update((id(inner), name) for inner in ast.walk(value))
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift | ast.Mult | ast.Pow):
            found: Any = _folded(node)
        else:
            found = node.value if isinstance(node, ast.Constant) else None
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        if is_number and found not in (PLAIN_FLOATS if isinstance(found, float) else PLAIN_INTS):
            yield names.get(id(node), "-"), found


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return [pair for t, v in zip(target.elts, value.elts, strict=True) for pair in _pairs(t, v)]
    return [(ast.unparse(target), value)]


def _folded(node: ast.expr) -> Any:
    """What a product, a power or a shift of numbers comes to; None where it is not of numbers alone."""
    if not all(isinstance(n, ast.Constant | ast.BinOp | ast.operator) for n in ast.walk(node)):
        return None
    return eval(compile(ast.Expression(node), "<number>", "eval"))


def test_no_number_of_hardware_is_written_into_planning() -> None:
    """Every number is a known count. What is new or gone has to be entered in `numbers_of_planning.py`, with its unit."""
    found: dict[str, set[str]] = {}
    for path in sorted(SCHEDULE.rglob("*.py")):
        names = {name for name, _ in numbers_of(path.read_text(encoding="utf-8"))}
        if names:
            found[str(path.relative_to(SCHEDULE))] = names
    known = {path: {name for names in units.values() for name in names.split()} for path, units in NUMBERS.items()}
    assert {p: sorted(n) for p, n in found.items()} == {p: sorted(n) for p, n in known.items()}


def test_units_of_numbers_are_known() -> None:
    assert {unit for units in NUMBERS.values() for unit in units} <= set(UNITS)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("RATE = 4.1e6", [("RATE", 4.1e6)]),
        ("LATENCY, STEP = 0.8, 2", [("LATENCY", 0.8)]),
        ("IN_FLIGHT: int = 48 * 1024", [("IN_FLIGHT", 48 * 1024)]),
        ("def f(x):\n    return x * 1.75 + 16", [("-", 1.75)]),
        ("COSTS = {2: 0.6, 4: 1.0}", [("COSTS", 0.6)]),
        ("LITTLE = 4 << 20", [("LITTLE", 4 << 20)]),
        ("HALF, ALL, FLAG = 0.5, 32, True", []),
    ],
)
def test_numbers_are_found(source: str, expected: list[tuple[str, float]]) -> None:
    assert list(numbers_of(source)) == expected
