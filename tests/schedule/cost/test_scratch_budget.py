"""What schedules leave for exchanges is what lowering and code generation take."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import pytest

from fuser import DataType, DeviceInfo, FusionDefinition
from fuser.codegen.exponentials import EXP_TABLE, EXPONENTIALS
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.recorder import Recorder
from fuser.ir.facts import TensorDescriptor
from fuser.lowering.memory.allocate_shared import NO_REUSE_BYTES
from fuser.schedule.cost.scratch_budget import EXCHANGES
from fuser.simulator.device import SimulatorDevice


def test_small_buffers_have_room() -> None:
    assert EXCHANGES >= NO_REUSE_BYTES


def test_maxima_and_sums_of_warps_have_room_beside_the_table() -> None:
    words = re.search(r"unsigned \w+\[(\d+)\]", EXPONENTIALS[EXP_TABLE])
    assert words is not None
    table = 4 * int(words.group(1))
    warps, results, of_double = 32, 2, 8
    assert table + warps * results * of_double <= EXCHANGES


class Cuts(Recorder):
    """Keeps how a fusion was cut, and why."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def stage(self, name: str, text: Callable[[], str]) -> None:
        if name == "segments.py":
            self.texts.append(text())


DTYPES = (DataType.BFloat16, DataType.Float, DataType.Double)


def columns(count: int, dtype: DataType, what: str) -> FusionDefinition:
    """Reductions over the rows of powers of x; "normalised": each with the values again."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        for k in range(count):
            y = fd.ops.pow(x, k + 1.5)
            if what == "normalised":
                variance, mean = fd.ops.var_mean(y, [0], 0, True)
                fd.add_output(fd.ops.mul(fd.ops.sub(y, mean), fd.ops.rsqrt(variance)))
            elif what == "variance":
                fd.add_output(fd.ops.var(y, [0]))
            else:
                fd.add_output(getattr(fd.ops, what)(y, [0]))
    return fd


@pytest.mark.in_turns
@pytest.mark.parametrize("device", ["H200", "sm_75", "sm_120"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("what", ["sum", "max", "variance", "normalised"])
def test_results_that_threads_of_columns_join_fit(what: str, dtype: DataType, device: str) -> None:
    """No kernel asks for more than a block may have, and no fusion is cut for it: schedules count what their threads join."""
    info = DeviceInfo.preset(device)
    for count, (rows, width) in product((1, 2, 3), ((2560, 2560), (384, 147_456), (12_544, 256))):
        definition = columns(count, dtype, what)
        assert definition.fusion is not None
        fusion = definition.fusion.ir_fusion
        cuts = Cuts()
        program = compile_fusion(
            fusion,
            bind_inputs(fusion, [TensorDescriptor(dtype, (rows, width), (width, 1))]),
            SimulatorDevice(info=info),
            recorder=cuts,
        )
        for kernel in program.kernels.values():
            assert kernel.plan is not None
            assert kernel.plan.shared_bytes.value <= info.shared_per_block_optin
        assert not any("bytes of shared memory" in text for text in cuts.texts)
