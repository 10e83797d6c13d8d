"""What a graph of commands asks of the driver, on a driver made of host memory (`tests/runtime/fake_driver.py`)."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from fuser.errors import LaunchError
from fuser.ir.integers.integers import as_int
from fuser.ir.kernel.launch_plan import LaunchPlan
from fuser.runtime import driver
from fuser.runtime.devices.cuda_device import CudaDevice
from fuser.runtime.devices.cuda_graphs import GraphHandles
from fuser.runtime.kernels.commands import Command, CopyCommand, FillCommand, KernelCommand, LibraryCommand
from fuser.runtime.kernels.library_calls import LibraryCall
from fuser.runtime.kernels.variants import KernelVariants
from fuser.runtime.launch import Launch
from tests.runtime.fake_driver import FakeDriver, install, kernel_of, no_compiler
from tests.runtime.small_binaries import LOAD, WAITS, image

LAUNCH = Launch((4, 1, 1), (128, 1, 1))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = install(monkeypatch)
    fake.parameter_sizes = [8, 4]
    return fake


@pytest.fixture
def device(fake: FakeDriver) -> CudaDevice:
    return CudaDevice(0, KernelVariants(no_compiler))


def memory(device: CudaDevice, nbytes: int) -> int:
    return device.allocate(nbytes, 0).address


def launch_of(kernel: Any, address: int, launch: Launch = LAUNCH) -> KernelCommand:
    return KernelCommand(kernel, launch, (address, 2.0))


def test_nodes_wait_for_those_of_their_edges(fake: FakeDriver, device: CudaDevice) -> None:
    a, b = memory(device, 64), memory(device, 64)
    kernel = kernel_of()
    commands: list[Command] = [
        FillCommand(a, b"\1\0\0\0", 16),
        launch_of(kernel, b),
        CopyCommand(b, a, 64),
        launch_of(kernel, a),
    ]
    graph = device.make_graph(commands, [(), (), (0, 1), (2,)])
    assert [[n.number for n in node.waits] for node in fake.nodes] == [[], [], [0, 1], [2]]
    graph.launch(5)
    assert ctypes.string_at(b, 64) == b"\1\0\0\0" * 16
    assert [launch.values for launch in fake.launches] == [[b], [a]]
    assert (fake.launches[0].grid, fake.launches[0].block) == ((4, 1, 1), (128, 1, 1))


def early_kernel(**changes: Any) -> Any:
    """A kernel whose plan says that it waits for the launches before it first, as its binary does."""
    one = as_int(1)
    plan = LaunchPlan(("t0",), ("alpha",), (), (), (one, one, one), (one, one, one), as_int(0), waits_first=True)
    return kernel_of(**{"plan": plan, "source": "waits", "cubin": image(WAITS), **changes})


def test_kernels_that_wait_first_start_early(fake: FakeDriver, device: CudaDevice) -> None:
    """Behind kernels, not behind what copies or fills; a kernel that does not wait starts when all are done."""
    a = memory(device, 64)
    plain, early = launch_of(kernel_of(), a), launch_of(early_kernel(), a)
    commands: list[Command] = [plain, FillCommand(a, b"\1", 64), early, early, plain]
    graph = device.make_graph(commands, [(), (), (0, 1), (2,), (2, 3)])
    assert [[n.number for n in node.waits] for node in fake.nodes] == [[], [], [1], [], [2, 3]]
    assert [[n.number for n in node.early] for node in fake.nodes] == [[], [], [0], [2], []]
    assert not any(node.attributes for node in fake.nodes), "it is a matter of edges"
    # Other memory and other sizes are no matter of edges; another kernel must wait as well.
    assert graph.set(2, launch_of(early.kernel, a + 4, replace(LAUNCH, grid=(100000, 1, 1))))
    assert not graph.set(3, plain)
    assert graph.set(3, launch_of(early_kernel(source="waits, too"), a))


def test_edges_are_not_early_where_the_binary_does_not_wait(
    fake: FakeDriver, device: CudaDevice, unlowered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a = memory(device, 64)
    plain, stripped = launch_of(kernel_of(), a), launch_of(early_kernel(source="loads", cubin=image(LOAD, WAITS)), a)
    graph = device.make_graph([plain, stripped], [(), (0,)])
    assert [[n.number for n in node.waits] for node in fake.nodes] == [[], [0]]
    assert not any(node.early for node in fake.nodes)
    # Nobody relies on what it waits for: sizes and kernels change in place.
    assert graph.set(1, launch_of(stripped.kernel, a, replace(LAUNCH, grid=(9, 1, 1))))
    assert graph.set(1, plain)
    (said,) = unlowered
    assert said.startswith("k does not start early: an instruction of opcode 0x981 stands before its wait")
    unlowered.clear()
    # Drivers before 12.3 know one kind of edge.
    monkeypatch.setattr(driver, "_version", (12, 2))
    device.make_graph([plain, launch_of(early_kernel(), a)], [(), (0,)])
    assert not any(node.early for node in fake.nodes)
    assert fake.nodes[-1].waits == [fake.nodes[-2]]


def test_early_launches_on_a_stream(fake: FakeDriver, device: CudaDevice, unlowered: list[str]) -> None:
    a = memory(device, 64)
    launch = replace(LAUNCH, early=True)
    for kernel, says in ((early_kernel(), 1), (early_kernel(source="loads", cubin=image(LOAD, WAITS)), 0)):
        device.launch(kernel, launch, (a, 2.0), 0)
        device.launch(kernel, replace(launch, grid=(9, 1, 1)), (a, 2.0), 0)
        device.launch(kernel, LAUNCH, (a, 2.0), 0)
        names = [[name for name, _ in found.attributes] for found in fake.launches[-3:]]
        assert names == [["PROGRAMMATIC_STREAM_SERIALIZATION"] * says] * 2 + [[]]
        assert len(unlowered) == 1 - says
    unlowered.clear()


@pytest.mark.parametrize("pattern", [b"\7", b"\1\2", b"\1\2\3\4", b"\1\2\3\4\5\6\7\x08", bytes(range(16))])
def test_fills(fake: FakeDriver, device: CudaDevice, pattern: bytes) -> None:
    """What comes after a fill waits for each of its words."""
    a = memory(device, 160)
    graph = device.make_graph([FillCommand(a, pattern, 10), CopyCommand(a, a, 0)], [(), (0,)])
    graph.launch(0)
    assert ctypes.string_at(a, 10 * len(pattern)) == pattern * 10
    assert ctypes.string_at(a + 10 * len(pattern), 1) == b"\xab" or len(pattern) == 16
    assert len(fake.nodes[-1].waits) == len(fake.nodes) - 1


def test_parameters_are_set_in_place(fake: FakeDriver, device: CudaDevice) -> None:
    a, b = memory(device, 64), memory(device, 64)
    kernel = kernel_of()
    graph = device.make_graph([launch_of(kernel, a), FillCommand(a, b"\1", 64)], [(), (0,)])
    assert graph.set(0, launch_of(kernel, b, Launch((9, 1, 1), (64, 1, 1))))
    assert graph.set(1, FillCommand(b, b"\2", 32))
    graph.launch(0)
    assert (fake.launches[0].values, fake.launches[0].grid) == ([b], (9, 1, 1))
    assert ctypes.string_at(b, 33) == b"\2" * 32 + b"\xab"
    assert fake.names().count("cuGraphInstantiate") == 1


def test_what_a_node_cannot_become_is_refused_before_anything_changes(fake: FakeDriver, device: CudaDevice) -> None:
    a = memory(device, 64)
    kernel = kernel_of()
    graph = device.make_graph([launch_of(kernel, a), FillCommand(a, b"\1", 8)], [(), (0,)])
    fake.calls.clear()
    assert not graph.set(0, CopyCommand(a, a, 8))
    assert not graph.set(0, launch_of(kernel, a, Launch((4, 1, 1), (128, 1, 1), cooperative=True)))
    assert not graph.set(0, launch_of(kernel, a, Launch((4, 1, 1), (128, 1, 1), cluster=(2, 1, 1))))
    assert not graph.set(1, FillCommand(a, bytes(range(16)), 1))
    assert not [name for name in fake.names() if "SetParams" in name]


def test_a_node_may_become_another_kernel(fake: FakeDriver, device: CudaDevice) -> None:
    a = memory(device, 64)
    graph = device.make_graph([launch_of(kernel_of(), a)], [()])
    assert graph.set(0, launch_of(kernel_of(entry="other"), a))
    graph.launch(0)
    assert [launch.function for launch in fake.launches] == [0x402]


def test_what_the_driver_does_not_set_in_place(fake: FakeDriver, device: CudaDevice) -> None:
    """Rows of a fill with a pattern of several words; where they are may change."""
    a, b = memory(device, 160), memory(device, 160)
    graph = device.make_graph([FillCommand(a, bytes(range(16)), 10)], [()])
    assert not graph.set(0, FillCommand(a, bytes(range(16)), 9))
    graph = device.make_graph([FillCommand(a, bytes(range(16)), 10)], [()])
    assert graph.set(0, FillCommand(b, bytes(range(1, 17)), 10))
    graph.launch(0)
    assert ctypes.string_at(b, 160) == bytes(range(1, 17)) * 10


def test_commands_of_no_bytes_are_waited_for(fake: FakeDriver, device: CudaDevice) -> None:
    a = memory(device, 64)
    commands: list[Command] = [FillCommand(a, b"\1", 8), CopyCommand(a, a, 0), FillCommand(a, b"\2\2", 0)]
    graph = device.make_graph([*commands, FillCommand(a, b"\3", 4)], [(), (0,), (1,), (2,)])
    assert [[n.number for n in node.waits] for node in fake.nodes] == [[], [0], [1], [2]]
    assert graph.set(1, CopyCommand(a, a + 4, 0))
    assert not graph.set(1, CopyCommand(a, a + 4, 4))
    assert not graph.set(0, FillCommand(a, b"\1", 0))
    graph.launch(0)
    assert ctypes.string_at(a, 8) == b"\3" * 4 + b"\1" * 4


def test_attributes(fake: FakeDriver, device: CudaDevice) -> None:
    """A node that waits for others is not let in earlier."""
    a = memory(device, 64)
    launches = [
        Launch((4, 1, 1), (128, 1, 1), cooperative=True),
        Launch((4, 1, 1), (128, 1, 1), cluster=(2, 1, 1)),
        Launch((4, 1, 1), (128, 1, 1), co_resident=True, shares_sms=True),
    ]
    device.make_graph([launch_of(kernel_of(), a, launch) for launch in launches], [(), (), ()])
    assert [node.attributes for node in fake.nodes] == [["COOPERATIVE"], ["CLUSTER_DIMENSION"], []]


def test_launches_are_checked_when_the_graph_is_made(fake: FakeDriver, device: CudaDevice) -> None:
    with pytest.raises(LaunchError, match="k cannot be launched with"):
        device.make_graph([launch_of(kernel_of(), memory(device, 64), Launch((4, 1, 1), (2048, 1, 1)))], [()])
    assert len(fake.destroyed) == 1, "the graph that was begun"


@pytest.mark.parametrize("call", ["cuGraphAddMemsetNode", "cuGraphInstantiate", "cuGraphLaunch"])
def test_failing_calls(fake: FakeDriver, device: CudaDevice, call: str) -> None:
    a = memory(device, 64)
    fake.fail_names[call] = 700
    with pytest.raises(LaunchError, match=f"{call} failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
        device.make_graph([FillCommand(a, b"\1", 8)], [()]).launch(0)
    assert fake.destroyed or call == "cuGraphLaunch"


def test_nothing_is_asked_of_the_driver_at_interpreter_exit(fake: FakeDriver, device: CudaDevice) -> None:
    """Nothing can be imported then, and all goes with the process."""
    handles = GraphHandles(device, 1, 2)
    fake.calls.clear()
    handles.__del__(lambda: True)
    assert not fake.calls
    # Before it both are given back, also where the driver has forgotten the first.
    fake.fail_names["cuGraphExecDestroy"] = 4
    handles.__del__(lambda: False)
    assert fake.names().count("cuGraphExecDestroy") == fake.names().count("cuGraphDestroy") == 1


def test_closing_gives_both_handles_back(fake: FakeDriver, device: CudaDevice) -> None:
    graph = device.make_graph([FillCommand(memory(device, 64), b"\1", 8)], [()])
    graph.close(3)
    # The event behind the last launch has passed by the next time that somebody looks.
    device.make_graph([], []).close(3)
    gc.collect()
    assert len(fake.destroyed) >= 2


CALL = LibraryCall("matmul", "torch", (), ())


class Captured:
    """What a library captures: a graph by a handle that says which addresses it is for."""

    alive: ClassVar[list[int]] = []

    def __init__(self, addresses: Any) -> None:
        self.graph = 0x9000 + addresses[0]
        Captured.alive.append(self.graph)

    def __del__(self) -> None:
        Captured.alive.remove(self.graph)


@pytest.fixture
def library(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    Captured.alive.clear()
    monkeypatch.setattr(device, "capture_library", lambda call, addresses, shared: Captured(addresses))
    monkeypatch.setattr(device, "why_not_recorded", lambda call: "it draws" if dict(call.numbers) else "")
    return device


def test_a_library_call_is_a_graph_within_the_graph(fake: FakeDriver, library: CudaDevice) -> None:
    a = memory(library, 64)
    commands: list[Command] = [FillCommand(a, b"\1", 8), LibraryCommand(CALL, (1,)), FillCommand(a, b"\2", 8)]
    graph = library.make_graph(commands, [(), (0,), (1,)])
    assert [[n.number for n in node.waits] for node in fake.nodes] == [[], [0], [1]]
    graph.launch(0)
    graph.launch(0)
    assert fake.children == [0x9001, 0x9001]


def test_a_call_on_other_memory_is_captured_anew_and_set_in_place(fake: FakeDriver, library: CudaDevice) -> None:
    graph = library.make_graph([LibraryCommand(CALL, (1,))], [()])
    assert graph.set(0, LibraryCommand(CALL, (2,)))
    # The launch before may still be at it.
    assert Captured.alive == [0x9001, 0x9002]
    graph.launch(0)
    assert fake.children == [0x9002]
    assert fake.names().count("cuGraphInstantiate") == 1
    graph.launch(0)
    assert graph.set(0, LibraryCommand(CALL, (3,)))
    graph.launch(0)
    graph.launch(0)
    gc.collect()
    assert 0x9001 not in Captured.alive
    graph.close(0)


def test_a_call_becomes_no_other_command(fake: FakeDriver, library: CudaDevice) -> None:
    graph = library.make_graph([LibraryCommand(CALL, (1,))], [()])
    assert not graph.set(0, CopyCommand(memory(library, 8), memory(library, 8), 8))


DRAWN = LibraryCall("sdpfa_fwd", "torch", (), (), (("dropout_p", 0.5),))


def test_calls_that_cannot_be_recorded_are_made_at_each_launch(
    library: CudaDevice, monkeypatch: pytest.MonkeyPatch, unlowered: list[str]
) -> None:
    made: list[tuple[int, ...]] = []
    monkeypatch.setattr(library, "call_library", lambda call, addresses, stream: made.append((*addresses, stream)))
    graph = library.make_graph([LibraryCommand(CALL, (1,)), LibraryCommand(DRAWN, (2,))], [(), (0,)])
    assert unlowered == ["a program with sdpfa_fwd is no graph: it draws"]
    unlowered.clear()
    graph.launch(5)
    graph.launch(6)
    assert made == [(1, 5), (2, 5), (1, 6), (2, 6)]


def test_a_recorded_call_becomes_none_that_cannot_be_recorded(library: CudaDevice) -> None:
    graph = library.make_graph([LibraryCommand(CALL, (1,))], [()])
    assert not graph.set(0, LibraryCommand(DRAWN, (1,)))


def test_memory_of_captures_hears_of_launches(
    fake: FakeDriver, device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def capture(call: Any, addresses: Any, shared: dict[str, Any]) -> Captured:
        shared["torch"] = SimpleNamespace(launched=lambda: told.append(1))
        return Captured(addresses)

    monkeypatch.setattr(device, "capture_library", capture)
    monkeypatch.setattr(device, "why_not_recorded", lambda call: "")
    graph = device.make_graph([LibraryCommand(CALL, (1,))], [()])
    graph.launch(0)
    graph.launch(0)
    assert told == [1, 1]
