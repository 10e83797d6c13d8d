"""The whole way for sizes that some scheduler refuses: who is asked next, and that it is told."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.recorder import KeepingRecorder
from fuser.host_ir.instructions import Allocate, LaunchKernel
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion import Fusion
from fuser.simulator.device import SimulatorDevice

Float = DataType.Float


def both_sums(fd: FusionDefinition) -> None:
    """A sum of rows that each element needs, and a sum of columns beside it."""
    x, g = fd.define_tensor([-1, -1], True, Float), fd.define_tensor([-1, -1], True, Float)
    product = x * g
    fd.add_output(g - x * fd.ops.sum(product, [1], True))
    fd.add_output(fd.ops.sum(product, [0]))


def stages_for(fusion: Fusion, *shapes: tuple[int, int]) -> dict[str, str]:
    """The stages of a compilation for two inputs of each shape."""
    inputs = [TensorDescriptor(Float, s, (s[1], 1), 256) for s in shapes for _ in range(2)]
    recorder = KeepingRecorder()
    compile_fusion(fusion, bind_inputs(fusion, inputs), SimulatorDevice(), recorder=recorder)
    return recorder.stages


def chosen(stages: dict[str, str]) -> list[str]:
    """The scheduler of each kernel."""
    return [text.split()[1] for name, text in stages.items() if name.endswith("params.py")]


@pytest.fixture
def twice() -> Fusion:
    with FusionDefinition() as fd:
        both_sums(fd)
        both_sums(fd)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def test_sizes_that_fit(twice: Fusion) -> None:
    stages = stages_for(twice, (16384, 1024), (32768, 1024))
    assert chosen(stages) == ["inner_outer_persistent", "inner_outer_persistent"]
    assert "cut again" not in stages["segments.py"]
    assert "sizes refused" not in "".join(text for name, text in stages.items() if name.endswith("params.py"))


def test_lots_of_one_segment_run_side_by_side(twice: Fusion) -> None:
    """Few rows are two kernels; the rest of the fusion is as it was, before and behind them."""
    for shapes in (((16384, 1024), (64, 4096)), ((64, 4096), (16384, 1024))):
        inputs = [TensorDescriptor(Float, s, (s[1], 1), 256) for s in shapes for _ in range(2)]
        program = compile_fusion(twice, bind_inputs(twice, inputs), SimulatorDevice())
        plans = [i.kernel.plan for i in program.instructions if isinstance(i, LaunchKernel)]
        roles = [(p.starts_next, p.beside) for p in plans if p is not None]
        pair = [(True, False), (False, True)]
        assert roles == ([(False, False), *pair] if shapes[0][0] > 64 else [*pair, (False, False)])
        assert sum(isinstance(i, Allocate) for i in program.instructions) == 4, (
            "nothing between the kernels but results"
        )


def test_refused_sizes_of_one_segment_leave_the_other_alone(twice: Fusion) -> None:
    stages = stages_for(twice, (4096, 1024), (8, 4_000_000))
    assert chosen(stages) == ["inner_outer_persistent", "reduction", "reduction"]
    first, *_ = stages["segments.py"].splitlines()
    assert first.startswith(
        "# cut again: no scheduler takes the sizes of the segment of t14, t15: inner_outer_persistent:"
    )
    assert "inner_outer_persistent refused: it does not take the sizes of a segment with" in stages["segments.py"]
    assert "sizes refused by inner_persistent: a row of 4000000 elements" in stages["s1.params.py"]


def test_explain_tells_what_was_left_to_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, Float)
        fd.add_output(x * 2.0)
    value = np.ones(8, np.float32)
    assert "left to the interpreter" not in str(fd.explain([value], file=False))
    fd.execute([value])
    fd.execute([value])
    assert "left to the interpreter: 2 runs, inputs are in host memory" in str(fd.explain([value], file=False))
