"""The kernel that chooses a body, and the memory that it tells in.

What a graph makes of them is in tests/host_ir/test_switch.py, and that it runs, in tests/gpu/test_switch.py.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from fuser.ir.ops.dtypes import DataType
from fuser.runtime import driver
from fuser.runtime.devices.cuda_switches import (
    ChoiceMemory,
    choice_kernel,
    choice_source,
    count_switches,
    has_switch_nodes,
)
from fuser.runtime.kernels import nvrtc
from fuser.runtime.kernels.commands import CommandBody, FillCommand, SwitchCommand
from fuser.runtime.kernels.selectors import NO_BODY, Selector
from fuser.runtime.kernels.variants import KernelVariants
from tests.runtime.fake_driver import FakeDriver, install

TYPES = (DataType.Int, DataType.Int32, DataType.UInt64, DataType.Bool)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return install(monkeypatch)


def selector(*bodies: int, dtype: DataType = DataType.Int) -> Selector:
    return Selector("it", dtype, bodies, NO_BODY)


def test_text(golden: Any) -> None:
    golden.check(choice_source(DataType.Int32, is_condition=False, sets_node=True), ".cu")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("is_condition", [False, True])
def test_texts_compile_without_headers_and_without_relocatable_code(arch: str, *, is_condition: bool) -> None:
    if not nvrtc.is_available():
        pytest.skip("NVRTC is not installed")
    table = KernelVariants()
    for dtype in TYPES:
        for sets_node in (False, True):
            kernel = choice_kernel(dtype, arch, is_condition=is_condition, sets_node=sets_node)
            binary = table.binary_for(kernel, 1)
            assert binary.resources is not None
            assert (binary.resources.spill_bytes, binary.resources.stack_bytes) == (0, 0)
            assert (b"cudaGraphSetConditional" in binary.cubin) is sets_node


@pytest.mark.parametrize(("version", "known"), [((12, 4), False), ((12, 7), False), ((12, 8), True), ((13, 0), True)])
def test_drivers_that_have_such_nodes(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], *, known: bool
) -> None:
    del fake
    monkeypatch.setattr(driver, "_version", version)
    assert has_switch_nodes() is known


def test_bindings_without_such_nodes(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = SimpleNamespace(CU_GRAPH_COND_TYPE_IF=0)
    monkeypatch.setattr(fake, "CUgraphConditionalNodeType", kinds, raising=False)
    assert not has_switch_nodes()


def test_those_in_bodies_are_counted() -> None:
    fill = FillCommand(0, b"\0", 1)
    inner = SwitchCommand(selector(0), 0, (CommandBody((fill,), ((),)),))
    outer = SwitchCommand(selector(0, 1), 0, (CommandBody((inner, fill, inner), ((), (), ())), CommandBody((), ())))
    assert count_switches([fill, outer, inner]) == 4


def test_tables_of_bodies(fake: FakeDriver) -> None:
    """None where body and case are one number; one for all that have the same."""
    memory = ChoiceMemory(3)
    assert memory.table(selector(0, 1, 2), 3) == 0
    found = memory.table(selector(1, 0, NO_BODY, 1), 2)
    assert list((ctypes.c_uint32 * 4).from_address(found)) == [1, 0, 2, 1]
    assert memory.table(selector(1, 0, NO_BODY, 1), 2) == found
    memory.release()
    assert fake.freed == [found]
    assert not fake.pinned


@pytest.mark.parametrize(
    ("dtype", "word", "value"),
    [(DataType.Int, (1 << 64) - 1, -1), (DataType.UInt64, (1 << 64) - 1, (1 << 64) - 1), (DataType.Int32, 7, 7)],
)
def test_what_the_device_writes_is_taken_once(fake: FakeDriver, dtype: DataType, word: int, value: int) -> None:
    memory = ChoiceMemory(2)
    memory.report(selector(0))
    report = memory.report(selector(0, dtype=dtype))
    assert memory.take() == []
    for address, written in ((report.address + 8, word), (report.address, 1), (report.flag, 1)):
        ctypes.c_uint64.from_address(address).value = written
    (told,) = memory.take()
    assert f"was {value} on the device" in told
    assert memory.take() == []
    memory.release()
    assert not fake.pinned
