"""The whole way for sizes that some scheduler refuses: who is asked next, and that it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.kernel_compiler import CompileOptions
from fuser.compiler.program_cache import ProgramCache
from fuser.compiler.recorder import KeepingRecorder
from fuser.errors import SchedulingError
from fuser.host_ir.instructions.instructions import Allocate, LaunchKernel
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.fusion.iteration_graph import IterationGraph
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import get_device
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from fuser.schedule.segmentation.registry import LAST_RESORT, SCHEDULERS
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
        roles = [(p.starts_next, p.co_resident) for p in plans if p is not None]
        pair = [(True, False), (False, True)]
        assert roles == ([(False, False), *pair] if shapes[0][0] > 64 else [*pair, (False, False)])
        assert sum(isinstance(i, Allocate) for i in program.instructions) == 4, (
            "nothing between the kernels but results"
        )


def test_refused_sizes_of_one_segment_leave_the_other_alone(twice: Fusion) -> None:
    stages = stages_for(twice, (4096, 1024), (300, 4_000_000))
    assert chosen(stages) == ["inner_outer_persistent", "reduction", "reduction"]
    first, *_ = stages["segments.py"].splitlines()
    assert first.startswith(
        "# cut again: the segment of t14, t15: no scheduler takes its sizes: inner_outer_persistent:"
    )
    assert "inner_outer_persistent refused: it does not take the sizes of a segment with" in stages["segments.py"]
    assert "sizes refused by inner_persistent: no way to hold rows of 4000000 elements" in stages["s1.params.py"]


def softmax() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, Float)
        e = fd.ops.exp(x - fd.ops.max(x, [1], True))
        fd.add_output(e / fd.ops.sum(e, [1], True))
    return fd


@pytest.fixture(autouse=True)
def dumped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where scripts are written that show a bug again."""
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path))
    return tmp_path


def refuse_to_apply(monkeypatch: pytest.MonkeyPatch, *schedulers: type) -> None:
    def apply(self: object, segment: Fusion, params: object) -> None:
        raise SchedulingError("that cannot be")

    for scheduler in schedulers:
        monkeypatch.setattr(scheduler, "apply", apply)


def test_a_proposal_that_cannot_be_lowered_is_a_refusal(monkeypatch: pytest.MonkeyPatch, unlowered: list[str]) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    refuse_to_apply(monkeypatch, InnerPersistentScheduler)
    value = np.random.default_rng(0).standard_normal((5, 130)).astype("f4")
    fd = softmax()
    (result,) = fd.execute([value])
    e = np.exp(value - value.max(1, keepdims=True))
    np.testing.assert_allclose(result, e / e.sum(1, keepdims=True), rtol=1e-6)
    (warning,) = unlowered
    assert "what inner_persistent proposes cannot be lowered: that cannot be. This is a bug of fuser; " in warning
    stages = fd.explain([value], file=False).stages
    assert stages["segments.py"].startswith("# cut again: the segment of ")
    assert "what inner_persistent proposes cannot be lowered: that cannot be" in stages["segments.py"]
    assert "# reduction" in stages["params.py"]
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with pytest.raises(SchedulingError, match="that cannot be"):
        softmax().execute([value])
    unlowered.clear()


def test_what_nobody_can_lower_is_an_error_with_every_reason(
    monkeypatch: pytest.MonkeyPatch, unlowered: list[str]
) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    refuse_to_apply(monkeypatch, *(type(s) for s in (*SCHEDULERS, LAST_RESORT)))
    with pytest.raises(SchedulingError, match="Can not find a scheduler to schedule fusion segment") as caught:
        softmax().execute([np.ones((5, 130), "f4")])
    notes = "\n".join(caught.value.__notes__)
    assert "the fusion was cut again because of the segment of" in notes
    assert "what reduction proposes cannot be lowered: that cannot be" in notes
    assert "what expr_eval proposes cannot be lowered: that cannot be" in notes
    unlowered.clear()


def test_explain_tells_what_was_left_to_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1], True, Float), fd.define_tensor([-1], True, Float)
        fd.add_output(x * y)
    value = np.ones(8, np.float32)
    inputs = [value, DeviceTensor.from_numpy(value, get_device("simulator"))]
    assert "left to the interpreter" not in str(fd.explain(inputs, file=False))
    fd.execute(inputs)
    fd.execute(inputs)
    expected = "left to the interpreter: 2 runs, inputs of several libraries or devices"
    assert expected in str(fd.explain(inputs, file=False))


@pytest.mark.parametrize("rows", [64, 16384])
def test_the_structure_is_analysed_once(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling for other sizes asks nothing anew of a fusion: what has been found stands in the one that is there."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, Float)
        e = fd.ops.exp(x - fd.ops.max(x, [1], True))
        fd.add_output(e / fd.ops.sum(e, [1], True))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    made: list[Fusion] = []
    built: list[tuple[int, bool]] = []
    plain_init, plain_graph = Fusion.__init__, IterationGraph.__init__

    def counted_fusion(self: Fusion, *given: Any, **named: Any) -> None:
        made.append(self)
        plain_init(self, *given, **named)

    def counted_graph(self: IterationGraph, *given: Any, **named: Any) -> None:
        built.append((len(made), named.get("resolving", False)))
        plain_graph(self, *given, **named)

    monkeypatch.setattr(Fusion, "__init__", counted_fusion)
    monkeypatch.setattr(IterationGraph, "__init__", counted_graph)
    cache, device = ProgramCache(fusion), SimulatorDevice()

    def compiled(*shape: int) -> tuple[int, int]:
        """(fusions, graphs) that it took."""
        made.clear()
        built.clear()
        inputs = bind_inputs(fusion, [TensorDescriptor(Float, shape, (shape[1], 1), 256)])
        cache.program(inputs, device, CompileOptions())
        return len(made), len(built)

    first, graphs = compiled(rows, 1024)
    assert first > 0
    assert compiled(rows, 1024) == (0, 0), "the program is there"
    again, fewer = compiled(rows, 4096)
    assert again == 0, "no copy of the fusion, which would be asked anew"
    assert fewer < graphs


def test_why_two_kernels_are_not_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by itself is refused for other reasons, which say nothing of both."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.sum(fd.ops.cumsum(x, 0), 1))
    text = fd.explain([np.ones((6, 8), np.float32)], file=False).stages["segments.py"]
    (both,) = text.split("# segments 0 and 1 as one kernel\n")[1:]
    assert (
        "inner_persistent refused: t1 is scanned along other dimensions than t2 is reduced over"
        in both.split("# segment 1")[0]
    )


def test_one_kernel_is_not_asked_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.sum(fd.ops.cumsum(x, 1), 1))
    assert "as one kernel" not in fd.explain([np.ones((6, 8), np.float32)], file=False).stages["segments.py"]
