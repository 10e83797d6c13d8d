"""Where a stage fails on a segment the fusion is cut further, in the end to single exprs: what users get is right, and told."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.codegen import generate
from fuser.compiler import kernel_compiler, program_cache
from fuser.errors import CompilationError, InputValueError, InternalError, NotSupportedError, SchedulingError
from fuser.ir.device_info import DeviceInfo
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from fuser.schedule.segmentation.registry import SCHEDULERS
from tests.fusions.fusion_corpus import assert_close, expected

Array = np.ndarray[Any, Any]
ERRORS = {
    "a bug that was looked for": InternalError("planted", pass_name="build_loop_nests"),
    "one that was not": KeyError("planted"),
    "a proposal that cannot be lowered": SchedulingError("planted"),
    "too deep": RecursionError("planted"),
    "a broken assumption": AssertionError("planted"),
}


@pytest.fixture(autouse=True)
def dumped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where scripts are written that show a bug again."""
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path))
    return tmp_path


def layer_norm() -> FusionDefinition:
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, -1]), fd.define_tensor([-1])
        variance, mean = fd.ops.var_mean(x, [1], 0, True)
        y = (x - mean) * fd.ops.rsqrt(variance + 1e-5)
        fd.add_output(y * fd.ops.broadcast(w, [True, False]))
    return fd


def inputs() -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((6, 33)).astype("f4"), rng.standard_normal(33).astype("f4")]


def normalised(x: Array, w: Array) -> Array:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w


def fails(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())
@pytest.mark.parametrize("stage", ["accepts", "propose", "apply"])
def test_another_scheduler_takes_it(
    stage: str, error: Exception, monkeypatch: pytest.MonkeyPatch, unlowered: list[str]
) -> None:
    monkeypatch.setattr(InnerPersistentScheduler, stage, fails(error))
    fd = layer_norm()
    (found,) = fd.execute(inputs(), device="simulator")
    np.testing.assert_allclose(np.asarray(found), normalised(*inputs()), rtol=1e-4, atol=1e-5)
    assert unlowered
    assert all(
        "inner_persistent" in told and "planted" in told and "This is a bug of fuser" in told for told in unlowered
    )
    segments = fd.explain(inputs(), file=False).stages["segments.py"]
    assert segments.startswith("# cut again: the segment of ")
    assert "planted" in segments
    unlowered.clear()


@pytest.mark.parametrize(
    "setting", [("FUSER_VERIFY", "passes"), ("FUSER_VERIFY", "proofs"), ("FUSER_FAULT", "insert_syncs")], ids=str
)
@pytest.mark.parametrize("stage", ["accepts", "propose", "apply"])
def test_who_looks_for_bugs_sees_them(stage: str, setting: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*setting)
    for error in ERRORS.values():
        monkeypatch.setattr(InnerPersistentScheduler, stage, fails(error))
        with pytest.raises(type(error), match="planted"):
            layer_norm().execute(inputs(), device="simulator")


@pytest.mark.parametrize("stage", ["accepts", "propose", "apply"])
def test_a_script_shows_the_bug_again(
    stage: str, dumped: Path, monkeypatch: pytest.MonkeyPatch, unlowered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As long as it is there. The warning names it."""
    with monkeypatch.context() as planted:
        planted.setattr(InnerPersistentScheduler, stage, fails(KeyError("planted")))
        layer_norm().execute(inputs(), device="simulator")
        (script,) = dumped.glob("reproduce-*.py")
        assert unlowered[0].endswith(f"To see it again: python {script}")
        with pytest.raises(KeyError, match="planted"):
            runpy.run_path(str(script))
    unlowered.clear()
    runpy.run_path(str(script))
    assert capsys.readouterr().out == "no error\n"


@pytest.mark.parametrize(
    "error", [NotSupportedError("planted"), InputValueError("planted"), MemoryError("planted")], ids=repr
)
def test_what_is_no_bug_is_told(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InnerPersistentScheduler, "apply", fails(error))
    with pytest.raises(type(error), match="planted"):
        layer_norm().execute(inputs(), device="simulator")


def test_a_bug_of_one_expr_leaves_the_others_together(monkeypatch: pytest.MonkeyPatch, unlowered: list[str]) -> None:
    """Code generation fails on one op: what is not it is fused, and the program ends after few attempts."""
    plain = generate.generate_cuda

    def picky(kernel: Any) -> Any:
        source = plain(kernel)
        if source.text.count("atan") and source.text.count("cos"):
            raise KeyError("planted")
        return source

    monkeypatch.setattr(kernel_compiler, "generate_cuda", picky)
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        for k in range(24):
            x = x * 0.5 + float(k)
            x = fd.ops.atan(x) if k == 11 else fd.ops.cos(x) if k == 12 else x
        fd.add_output(x)
    value = np.linspace(-1, 1, 100, dtype=np.float32)
    (found,) = fd.execute([value], device="simulator")
    for k in range(24):
        value = value * np.float32(0.5) + np.float32(k)
        value = np.arctan(value) if k == 11 else np.cos(value) if k == 12 else value
    np.testing.assert_allclose(np.asarray(found), value, rtol=1e-5)
    assert 0 < len(unlowered) <= 8
    assert len(fd.explain([value], file=False).stages["segments.py"].split("# segment ")) <= 8
    unlowered.clear()


def everything(fd: FusionDefinition) -> None:
    """An op of each kind that a kernel computes."""
    o = fd.ops
    x, w = fd.define_tensor([-1, -1]), fd.define_tensor([-1])
    index = fd.define_tensor([-1], dtype=DataType.Int)
    variance, mean = o.var_mean(x, [0], 0, True)
    fd.add_output(o.sub(x, mean) * o.rsqrt(variance + 1.0))
    fd.add_output(o.max(o.exp(x), [1]))
    fd.add_output(o.sum(x, [0, 1]))
    fd.add_output(o.cumsum(x, 0))
    fd.add_output(o.permute(o.neg(x), [1, 0]))
    fd.add_output(o.pad(o.slice(x, [1, 2], [4, 9]), [1, 2]))
    fd.add_output(o.cat([x, o.mul(x, 2.0)], 1))
    fd.add_output(o.index_select(x, index, 0))
    fd.add_output(o.add(o.reshape(o.mul(x, 3.0), [-1]), 1.0))
    fd.add_output(o.mul(o.broadcast(w, [True, False]), o.iota(fd.ops.size(w, 0), dtype=DataType.Int)))
    fd.add_output(o.add(w, 1.0), w)


@pytest.mark.parametrize("stage", ["propose", "apply"])
def test_single_exprs_are_what_is_left(stage: str, monkeypatch: pytest.MonkeyPatch, unlowered: list[str]) -> None:
    for scheduler in SCHEDULERS[1:]:  # the first is for what launches nothing
        monkeypatch.setattr(type(scheduler), stage, fails(KeyError("planted")))
    with FusionDefinition() as fd:
        everything(fd)
    assert fd.fusion is not None
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 12)).astype("f4"), rng.standard_normal(12).astype("f4")
    values: list[Any] = [x, w, np.array([3, 0, 3, 4])]
    want = expected(fd.fusion.ir_fusion, values)
    found = fd.execute(values, device="simulator")
    for k, (out, ref, n) in enumerate(zip(found, want.outputs, want.folded, strict=True)):
        assert_close(np.asarray(out), ref, n, f"output {k}")
    assert_close(w, want.updates[1], 1, "update")
    assert any(told.startswith("no scheduler takes the expr of ") for told in unlowered)
    unlowered.clear()


def test_the_last_resort_is_an_error_where_proposals_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single expr that all schedulers refuse."""
    from fuser.schedule.scheduler import Refused
    from fuser.schedule.schedulers.pointwise import PointwiseScheduler

    monkeypatch.setattr(PointwiseScheduler, "accepts", lambda *_: Refused("not today"))
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.neg(fd.define_tensor([-1])))
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with pytest.raises(SchedulingError, match="Can not find a scheduler to schedule fusion segment") as caught:
        fd.execute([np.ones(3, "f4")], device="simulator")
    assert "pointwise: not today" in str(caught.value)


def test_nvrtc_refuses_a_text(monkeypatch: pytest.MonkeyPatch, unlowered: list[str]) -> None:
    """Kernels that it takes are used instead."""
    from fuser.runtime.kernels import nvrtc

    plain = nvrtc.compile_to_cubin

    def picky(source: str, *rest: Any) -> Any:
        if source.count("shfl"):
            raise CompilationError("planted", log="error: planted")
        return plain(source, *rest)

    monkeypatch.setattr(nvrtc, "compile_to_cubin", picky)
    from fuser.compiler.bind_inputs import bind_inputs
    from fuser.compiler.compile_fusion import compile_fusion

    fusion = layer_norm().fusion
    assert fusion is not None
    program = compile_fusion(fusion.ir_fusion, bind_inputs(fusion.ir_fusion, inputs()), DeviceInfo.preset("H200"))
    assert all("shfl" not in k.source for k in program.kernels.values())
    assert unlowered
    unlowered.clear()
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with pytest.raises(CompilationError, match="segment 0: planted"):
        compile_fusion(fusion.ir_fusion, bind_inputs(fusion.ir_fusion, inputs()), DeviceInfo.preset("H200"))


def many_steps(count: int) -> FusionDefinition:
    """Chains of ops that one kernel would compute."""
    with FusionDefinition() as fd:
        x = y = fd.define_tensor([-1, -1])
        for k in range(count):
            y = fd.ops.sin(y) if k % 2 else y + x
        fd.add_output(y)
    return fd


def test_all_segments_that_fail_are_cut_at_once(monkeypatch: pytest.MonkeyPatch, unlowered: list[str]) -> None:
    """Attempts are as many as halvings for each scheduler, not as segments; and a new shape repeats none that has failed."""
    attempts: list[int] = []
    lowered: list[int] = []
    plan = program_cache.plan_fusion
    lower = kernel_compiler.lower_fusion

    def counted(fusion: Any, recorder: Any, without: Any, reasons: Any) -> Any:
        attempts.append(len(without))
        return plan(fusion, recorder, without, reasons)

    def fails_but_alone(scheduled: Any, *rest: Any, **more: Any) -> Any:
        lowered.append(len(scheduled.fusion.tensor_exprs))
        if lowered[-1] > 1:
            raise InternalError("planted", pass_name="build_loop_nests")
        return lower(scheduled, *rest, **more)

    monkeypatch.setattr(program_cache, "plan_fusion", counted)
    monkeypatch.setattr(kernel_compiler, "lower_fusion", fails_but_alone)
    fd = many_steps(8)
    for rows, is_first in ((6, True), (7, False), (8, False)):
        x = np.random.default_rng(rows).random((rows, 33)).astype("f4")
        y = x
        for k in range(8):
            y = np.sin(y) if k % 2 else y + x
        (found,) = fd.execute([x], device="simulator")
        np.testing.assert_allclose(np.asarray(found), y, rtol=1e-4, atol=1e-5)
        assert bool(unlowered) is is_first
        assert any(n > 1 for n in lowered) is is_first
        unlowered.clear()
        lowered.clear()
    assert 1 < len(attempts) <= 8
