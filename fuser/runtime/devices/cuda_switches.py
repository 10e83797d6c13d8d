"""Choices in CUDA graphs: a conditional node, and the kernel of one thread that sets it.

    selector -> choose_body -> SWITCH node -> what comes after all bodies

The kernel is one of its own, since what sets a node takes 24 registers and a kernel that computes should not pay for that. It
includes nothing: `cudaGraphSetConditional` is declared here and supplied by the driver when the binary is loaded, so that
ordinary machine code does, without relocatable code and without the library for launches by the device.

The driver runs no body for a value beyond the last one, and reports nothing. That is how a body without commands is written;
a selector out of range takes the default and is told in memory of the host that the device writes to.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

from fuser.ir.ops.dtypes import DataType
from fuser.runtime import driver
from fuser.runtime.kernels.commands import Command, KernelCommand, SwitchCommand
from fuser.runtime.kernels.compiled_kernel import CompiledKernel, content_hash
from fuser.runtime.kernels.raw_signature import RawKind, RawParameter
from fuser.runtime.kernels.selectors import NO_BODY, Selector
from fuser.runtime.launch import Launch

_SINCE = (12, 8)
_TYPES = {
    DataType.Int: ("long long", "int64"),
    DataType.Int32: ("int", "int32"),
    DataType.UInt64: ("unsigned long long", "uint64"),
    DataType.Bool: ("unsigned char", "uint8"),
}
_ONE = Launch((1, 1, 1), (1, 1, 1))
# Of all contexts, and of the device as well.
_PORTABLE, _MAPPED = 1, 2


def has_switch_nodes() -> bool:
    """Whether the driver and its bindings know nodes that choose among bodies."""
    kinds = getattr(driver.bindings(), "CUgraphConditionalNodeType", None)
    return driver.driver_version() >= _SINCE and hasattr(kinds, "CU_GRAPH_COND_TYPE_SWITCH")


def count_switches(commands: Sequence[Command]) -> int:
    """How many there are, those in bodies too."""
    return sum(
        1 + sum(count_switches(body.commands) for body in command.bodies)
        for command in commands
        if isinstance(command, SwitchCommand)
    )


# --- the kernel -------------------------------------------------------------------------------------------------------


def choice_source(dtype: DataType, *, is_condition: bool, sets_node: bool) -> str:
    """CUDA text of the kernel for selectors of one type.

    report   [flag of the whole graph] is `flag`; of this choice [whether a value was out of range, the value]
    bodies   of each case the number of its body; null where it is that of the case
    """
    number = "*selector != 0 ? 0 : 1" if is_condition else "(unsigned long long)(long long)*selector"
    declared = (
        'extern "C" __device__ void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned int value);\n'
    )
    return (
        f"{declared if sets_node else ''}"
        f'extern "C" __global__ void __launch_bounds__(1)\n'
        f"{_entry(dtype, is_condition, sets_node)}(const {_TYPES[dtype][0]}* selector, unsigned long long cases, "
        "const unsigned int* bodies, unsigned int otherwise, volatile unsigned long long* flag, "
        "volatile unsigned long long* report, unsigned long long handle) {\n"
        # Negative ones become the largest.
        f"    const unsigned long long number = {number};\n"
        "    unsigned int body = otherwise;\n"
        "    if (number < cases) {\n"
        "        body = bodies == 0 ? (unsigned int)number : bodies[number];\n"
        "    } else {\n"
        "        report[1] = number;\n"
        "        report[0] = 1;\n"
        # The host looks at the flag first, and must find the rest behind it.
        "        __threadfence_system();\n"
        "        flag[0] = 1;\n"
        "    }\n"
        f"    {'cudaGraphSetConditional(handle, body)' if sets_node else '(void)body; (void)handle'};\n"
        "}\n"
    )


def _entry(dtype: DataType, is_condition: bool, sets_node: bool) -> str:
    return f"{'choose' if sets_node else 'check'}_{'condition' if is_condition else 'case'}_{_TYPES[dtype][1]}"


@cache
def choice_kernel(dtype: DataType, arch: str, *, is_condition: bool, sets_node: bool) -> CompiledKernel:
    """The kernel; its binary is made when a graph first needs it."""
    source = choice_source(dtype, is_condition=is_condition, sets_node=sets_node)
    entry = _entry(dtype, is_condition, sets_node)
    c_type, name = _TYPES[dtype]
    word = "unsigned long long"
    return CompiledKernel(
        source=source,
        entry=entry,
        arch=arch,
        cubin=None,
        kernel_ir=None,
        parameters=(
            RawParameter("selector", f"const {c_type}*", RawKind.pointer, name, 8, 8, dtype.itemsize, is_const=True),
            RawParameter("cases", word, RawKind.scalar, "uint64", 8, 8),
            RawParameter("bodies", "const unsigned int*", RawKind.pointer, "uint32", 8, 8, 4, is_const=True),
            RawParameter("otherwise", "unsigned int", RawKind.scalar, "uint32", 4, 4),
            RawParameter("flag", f"volatile {word}*", RawKind.pointer, "uint64", 8, 8, 8),
            RawParameter("report", f"volatile {word}*", RawKind.pointer, "uint64", 8, 8, 8),
            RawParameter("handle", word, RawKind.scalar, "uint64", 8, 8),
        ),
        plan=None,
        facts=frozenset(),
        resources=None,
        max_block_size=0,
        register_limit=255,
        options=(),
        nvrtc_version=None,
        content_hash=content_hash(source, (), arch, None, entry),
        bounded=False,
        fixed_bounds=1,
    )


def choice_launch(arch: str, command: SwitchCommand, table: int, report: Report, handle: int) -> KernelCommand:
    """The launch that sets the node of a choice, or, without a node, only looks at the selector.

    table   address of `Tables.of` the selector, 0 where none is needed
    """
    selector = command.selector
    kernel = choice_kernel(selector.dtype, arch, is_condition=selector.is_condition, sets_node=bool(command.bodies))
    none = len(command.bodies)
    otherwise = none if selector.default == NO_BODY else selector.default
    arguments = (command.address, len(selector.bodies), table, otherwise, report.flag, report.address, handle)
    return KernelCommand(kernel, _ONE, arguments)


# --- the node ---------------------------------------------------------------------------------------------------------


def add_switch_node(context: Any, graph: Any, waits: list[Any], handle: Any, count: int) -> tuple[Any, list[Any]]:
    """(a node that runs one of `count` bodies, their graphs, which are empty and belong to the node)."""
    module = driver.bindings()
    parameters = module.CUgraphNodeParams()
    parameters.type = module.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    choice = parameters.conditional
    choice.handle = handle
    choice.type = module.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_SWITCH
    choice.size = count
    choice.ctx = context
    node = driver.call("cuGraphAddNode", graph, waits, None, len(waits), parameters)
    return node, list(parameters.conditional.phGraph_out)[:count]


# --- memory -----------------------------------------------------------------------------------------------------------


class Report:
    """Where one choice of a graph tells of a selector out of range. Addresses are the device's."""

    def __init__(self, flag: int, address: int, words: Any) -> None:
        self.flag = flag
        self.address = address
        self._words = words
        self.selector: Selector | None = None

    def take(self) -> str | None:
        """What it has told since the last time."""
        if not self._words[0]:
            return None
        self._words[0] = 0
        value = self._words[1]
        assert self.selector is not None
        if self.selector.dtype is not DataType.UInt64 and value >= 1 << 63:
            value -= 1 << 64
        return self.selector.complaint(value)


class ChoiceMemory:
    """What the choices of one graph need besides its nodes: places to report to, and tables of bodies.

    The places are memory of the host that the device writes to, and only where there is something to tell: the host looks
    there without waiting for anything. Needs the current context of the device, as `release` does.
    """

    def __init__(self, count: int) -> None:
        self._tables: dict[tuple[int, ...], int] = {}
        self._free: list[Report] = []
        self._reports: list[Report] = []
        self._process = os.getpid()
        with driver.beside_captures():
            self._host = int(driver.call("cuMemHostAlloc", 8 * (1 + 2 * count), _PORTABLE | _MAPPED))
        words = (ctypes.c_uint64 * (1 + 2 * count)).from_address(self._host)
        for k in range(len(words)):
            words[k] = 0
        self._words = memoryview(words).cast("B").cast("Q")
        for k in range(count):
            at = 1 + 2 * k
            self._free.append(Report(self._host, self._host + 8 * at, self._words[at : at + 2]))

    def report(self, selector: Selector) -> Report:
        """A place for one choice."""
        found = self._free.pop(0)
        found.selector = selector
        self._reports.append(found)
        return found

    def table(self, selector: Selector, count: int) -> int:
        """Address of the numbers of bodies by case, of `count` bodies in all; 0 where they are those of the cases."""
        bodies = tuple(count if body == NO_BODY else body for body in selector.bodies)
        if bodies == tuple(range(len(bodies))):
            return 0
        found = self._tables.get(bodies)
        if found is None:
            host = (ctypes.c_uint32 * len(bodies))(*bodies)
            with driver.beside_captures():
                found = self._tables[bodies] = int(driver.call("cuMemAlloc", ctypes.sizeof(host)))
                driver.call("cuMemcpyHtoD", found, ctypes.addressof(host), ctypes.sizeof(host))
        return found

    def take(self) -> list[str]:
        """What choices have told since the last time. A child that was forked off has not this memory."""
        if os.getpid() != self._process or not self._words[0]:
            return []
        self._words[0] = 0
        return [told for told in (report.take() for report in self._reports) if told is not None]

    def release(self) -> None:
        """Give the memory back. No launch may be under way, and `take` is over."""
        for address in self._tables.values():
            driver.call("cuMemFree", address)
        driver.call("cuMemFreeHost", self._host)
