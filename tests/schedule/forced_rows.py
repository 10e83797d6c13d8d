"""Lets the scheduler of persistent rows propose mappings of one kind, so that tests see its values whichever is fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import H200, DeviceInfo
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.kernel.kernel import Kernel
from fuser.optimize.fuse_exp_sums import fuse_exp_sums
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.schedule.cost import row_mappings as enumeration
from fuser.schedule.cost.row_mappings import RowMapping, row_mappings
from fuser.schedule.cost.row_search import ROWS
from fuser.schedule.cost.row_space import RowSpace
from fuser.schedule.params import InnerPersistentParams, Params
from fuser.schedule.scheduler import Refused
from fuser.schedule.schedulers import inner_persistent
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from fuser.simulator.device import SimulatorDevice
from tests.fusions.rows import Array, Definition, arrays_for, assert_near, described, fusion_of, inputs_for, reference
from tests.judging.harness import run_on

Kind = Callable[[RowMapping], bool]


def propose_only(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    """Leave the mappings for which `kind` is true. It is an error if none is."""

    def some(row: RowSpace, device: DeviceInfo) -> Iterator[RowMapping]:
        all_of_them = row_mappings(replace(row, may_use_block_groups=True), device)
        assert any(map(kind, all_of_them)), f"no mapping of this kind fits {row}"
        return (m for m in row_mappings(row, device) if kind(m))

    # Rows of tests are short.
    monkeypatch.setattr(enumeration, "MIN_THREADS", 1)
    # A search of its own: nothing is taken from before, nor left for later tests.
    monkeypatch.setattr(inner_persistent, "ROWS", replace(ROWS, mappings=some, likely=None))


def go_over_groups(monkeypatch: pytest.MonkeyPatch, kind: Kind, groups: int = 0) -> None:
    """Of short rows as well: groups of blocks of a warp, with one access of a thread or more. `groups` of them, or as many as
    the scheduler has."""
    monkeypatch.setattr(enumeration, "MIN_OF_GROUP", 1)
    monkeypatch.setattr(enumeration, "MIN_PIECES", 1)
    monkeypatch.setattr(enumeration, "GROUP_THREADS", (32,))
    propose_only(monkeypatch, lambda m: m.groups > 0 and kind(m))
    if groups:
        change_proposals(monkeypatch, lambda p: replace(p, groups=p.groups and replace(p.groups, count=groups)))


def change_proposals(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[InnerPersistentParams], InnerPersistentParams]
) -> None:
    """Change the parameters that are proposed."""
    propose = InnerPersistentScheduler.propose

    def changed(self: InnerPersistentScheduler, *arguments: Any) -> Params | Refused:
        params = propose(self, *arguments)
        assert isinstance(params, InnerPersistentParams)
        return change(params)

    monkeypatch.setattr(InnerPersistentScheduler, "propose", changed)


def proposed(
    fusion: Fusion, *shapes: tuple[int, ...], dtype: DataType, device: DeviceInfo = H200
) -> InnerPersistentParams:
    """For tensors without gaps."""
    inputs = inputs_for(fusion, *(described(dtype, *s) for s in shapes))
    params = InnerPersistentScheduler().propose(fusion, inputs, device)
    assert isinstance(params, InnerPersistentParams), params
    return params


def run_rows(
    define: Definition, dtype: DataType, rows: int, length: int, device: DeviceInfo = H200
) -> tuple[CompiledKernel, Kernel]:
    """One kernel, with a maximum and a sum of exponentials as one reduction, whose outputs are compared with float64."""
    fusion = fuse_exp_sums(fusion_of(define, dtype))
    arrays = arrays_for(define, dtype, rows, length)
    simulator = SimulatorDevice(info=device)
    kernel = KernelCompiler(simulator).compile(fusion, [described(dtype, *a.shape) for a in arrays])
    found = run_on(simulator, kernel, fusion, arrays)
    assert_near([found[t.name] for t in fusion.output_tensors], reference(define, arrays), dtype)
    assert kernel.kernel_ir is not None
    return kernel, kernel.kernel_ir


def execute_rows(define: Definition, arrays: list[Array], dtype: DataType) -> tuple[list[Array], Kernel]:
    """Results of a definition, and the one kernel of its program."""
    with FusionDefinition() as fd:
        define(fd, dtype)
    found = fd.execute(arrays, device="simulator")
    (launch,) = fd.program(arrays).launches()
    assert launch.kernel.kernel_ir is not None
    return [np.asarray(value) for value in found], launch.kernel.kernel_ir
