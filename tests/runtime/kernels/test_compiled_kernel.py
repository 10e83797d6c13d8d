"""The file form of compiled kernels."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import fuser.ir.integers.integers
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.errors import InputValueError
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import Aligned
from fuser.ir.kernel.print_kernel import print_kernel
from fuser.runtime.devices.device import Device, get_device
from fuser.runtime.kernels.compiled_kernel import KERNEL_CLASSES, KERNEL_FILE, BlocksBy, CompiledKernel, Resources
from fuser.runtime.kernels.raw_signature import RawKind, RawParameter
from tests.fusions.fusion_corpus import ALIGNED, case


def kernels_of(name: str, device: Device | DeviceInfo) -> list[CompiledKernel]:
    """Those of a case of the corpus."""
    fusion = case(name).define().fusion
    assert fusion is not None
    bound = bind_inputs(fusion.ir_fusion, case(name).inputs(ALIGNED, 0))
    return list(compile_fusion(fusion.ir_fusion, bound, device).kernels.values())


RAW = CompiledKernel(
    source='extern "C" __global__ void twice(float* y) { y[threadIdx.x] *= 2; }',
    entry="twice",
    arch="sm_90a",
    cubin=bytes(range(256)),
    kernel_ir=None,
    parameters=(RawParameter("y", "float*", RawKind.pointer, "float32", 8, 8, 4),),
    plan=None,
    facts=frozenset({Aligned("y", 16), Aligned("y", 4)}),
    resources=Resources(12, 0, 0, 48),
    max_block_size=256,
    register_limit=255,
    options=("-lineinfo",),
    nvrtc_version=(12, 9),
    content_hash="00ff",
    spilled_with=(0, 2),
    blocks_by=BlocksBy.user,
    log="ptxas: \u2018twice\u2019",
    bounded=False,
    fixed_bounds=512,
    name_expression="twice<float>",
)


def assert_same(a: CompiledKernel, b: CompiledKernel) -> None:
    for field in dataclasses.fields(CompiledKernel):
        if field.name not in ("kernel_ir", "plan", "parameters"):
            assert getattr(a, field.name) == getattr(b, field.name), field.name
    assert a.plan == b.plan
    assert repr(a.parameters) == repr(b.parameters)
    assert (a.kernel_ir is None) == (b.kernel_ir is None)
    if a.kernel_ir is not None and b.kernel_ir is not None:
        assert print_kernel(a.kernel_ir) == print_kernel(b.kernel_ir)
        assert b.parameters is b.kernel_ir.parameters
        assert b.plan is b.kernel_ir.plan
    assert KERNEL_FILE.to_bytes(a) == KERNEL_FILE.to_bytes(b)


@pytest.mark.parametrize(
    "name",
    ["bias_gelu", "layer_norm_backward", "cross_entropy", "dropout", "complex_sum", "running_sum", "channels_last"],
)
def test_kernels_of_the_simulator(name: str, tmp_path: Path) -> None:
    for kernel in kernels_of(name, get_device("simulator")):
        kernel.save(tmp_path / "kernel")
        assert_same(kernel, CompiledKernel.load(str(tmp_path / "kernel")))


def test_kernels_with_a_binary(tmp_path: Path) -> None:
    (compiled,) = kernels_of("softmax", DeviceInfo.preset("H200"))
    for kernel in (compiled, RAW):
        kernel.save(tmp_path / "kernel")
        again = CompiledKernel.load(tmp_path / "kernel")
        assert_same(kernel, again)
        assert again.cubin == kernel.cubin is not None
        assert again.resources == kernel.resources is not None
    assert [p.name for p in tmp_path.iterdir()] == ["kernel"], "nothing else is left there"


def test_pickles_hold_the_file_form_and_copies_are_the_kernel() -> None:
    assert KERNEL_FILE.to_bytes(RAW) in pickle.dumps(RAW)
    assert_same(RAW, pickle.loads(pickle.dumps(RAW)))
    assert copy.copy(RAW) is RAW
    assert copy.deepcopy(RAW) is RAW


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "kernel"
    with pytest.raises(FileNotFoundError):
        CompiledKernel.load(path)
    with pytest.raises(TypeError):
        CompiledKernel.load(3)  # type: ignore[arg-type]
    RAW.save(path)
    whole = path.read_bytes()
    for data, text in [
        (b"", "it is no file of fuser"),
        (whole[:-1], f"it has {len(whole) - 1 - whole.index(10) - 1} bytes of {len(whole) - whole.index(10) - 1}"),
        (whole[:-1] + b"?", "its checksum is wrong"),
        (whole.replace(b" 1 ", b" 2 ", 1), "it has format 2, and this version of fuser reads format 1"),
    ]:
        path.write_bytes(data)
        with pytest.raises(InputValueError) as caught:
            CompiledKernel.load(path)
        assert caught.value.message == f"{path} cannot be loaded as a kernel: {text}"


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        RAW.save(tmp_path / "folder")
    with pytest.raises(OSError):
        RAW.save(tmp_path / "missing" / "kernel")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
    assert list((tmp_path / "folder").iterdir()) == []


BYTES_OF_A_KERNEL = """
import sys
from tests.runtime.kernels.test_compiled_kernel import KERNEL_FILE, get_device, kernels_of
for kernel in kernels_of("layer_norm_backward", get_device("simulator")):
    sys.stdout.buffer.write(KERNEL_FILE.to_bytes(kernel))
"""


def test_bytes_are_the_same_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bytes] = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        found.append(subprocess.run([sys.executable, "-c", BYTES_OF_A_KERNEL], capture_output=True, check=True).stdout)
    assert len(found[0]) > 1000
    assert found[0] == found[1]


def mentioned(annotation: Any) -> Iterator[Any]:
    """The classes in an annotation."""
    arguments = typing.get_args(annotation)
    if not arguments:
        yield annotation
    for argument in arguments:
        yield from mentioned(argument)


def test_every_class_of_a_kernel_can_be_written() -> None:
    """A field of a new class needs a line in `KERNEL_CLASSES`."""
    known = {*KERNEL_CLASSES, str, int, float, bool, complex, bytes, object, types.NoneType, ...}
    waiting: list[type] = [CompiledKernel]
    seen: set[Any] = set()
    while waiting:
        cls = waiting.pop()
        if cls in seen:
            continue
        seen.add(cls)
        if issubclass(cls, (Enum, fuser.ir.integers.integers.Int, fuser.ir.integers.integers.Cond)):
            continue
        module = sys.modules[cls.__module__]
        imported = ("fuser.ir.integers.integers", "fuser.ir.facts", "fuser.runtime.kernels.compiled_kernel")
        names = {k: v for m in (*map(sys.modules.__getitem__, imported), module) for k, v in vars(m).items()}
        for annotation in typing.get_type_hints(cls, names).values():
            for found in mentioned(annotation):
                if inspect.isclass(found) and found.__module__.startswith("fuser."):
                    waiting.append(found)
                else:
                    assert found in known, f"{cls.__name__}: {annotation}"
    integers = {c for c in seen if issubclass(c, (fuser.ir.integers.integers.Int, fuser.ir.integers.integers.Cond))}
    assert seen - integers <= set(KERNEL_CLASSES)
    # None is there for nothing, but for unions that list more than a finished kernel has.
    assert set(KERNEL_CLASSES) <= seen
