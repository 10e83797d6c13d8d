"""Library calls by torch: tensors over the memory of slots, without copies, and torch's own functions writing into them.

The streams are the caller's: work goes to the stream that it is given, whatever torch's current one is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from fuser import locks
from fuser.runtime import dlpack
from fuser.runtime.library_calls import LibraryCall, Operand
from fuser.runtime.streams import LEGACY

if TYPE_CHECKING:
    from fuser.runtime.device import Device

Tensors = Mapping[str, Any]


def run(device: Device, call: LibraryCall, addresses: Sequence[int], stream: int) -> None:
    """Enqueue a call on `stream`. `addresses`: of its inputs, then of its outputs."""
    import torch

    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.cuda.device(device.index))
        if int(torch.cuda.current_stream(device.index).cuda_stream) != stream:
            stack.enter_context(torch.cuda.stream(_stream(device, stream)))
        _compute(device, call, addresses)


class Captured:
    """A call as a graph of CUDA, with the memory that it takes meanwhile; `graph` is the handle of a cudaGraph_t."""

    def __init__(self, device: Device, call: LibraryCall, addresses: Sequence[int]) -> None:
        import torch

        # torch's own capture: what the call allocates stays its own for as long as this lives.
        self._held: Any = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.no_grad(), torch.cuda.device(device.index), torch.cuda.stream(torch.cuda.Stream()):
            self._held.capture_begin(capture_error_mode="thread_local")
            try:
                _compute(device, call, addresses)
            finally:
                self._held.capture_end()
        self.graph = int(self._held.raw_cuda_graph())


def _stream(device: Device, handle: int) -> Any:
    import torch

    if handle in LEGACY:
        return torch.cuda.default_stream(device.index)
    return torch.cuda.ExternalStream(handle, device=device.index)


def _compute(device: Device, call: LibraryCall, addresses: Sequence[int]) -> None:
    pairs = list(zip((*call.inputs, *call.outputs), addresses, strict=True))
    tensors = [_tensor(device.index, operand, address) for operand, address in pairs]
    count = len(call.inputs)
    named = {o.name: t for o, t in zip(call.inputs, tensors, strict=False)}
    _OPS[call.op](named, dict(call.numbers), tensors[count:])


# Tensors over memory that others own, by where and how it lies: an address that comes again, as those of a caching allocator
# do, has its tensor already. They hold nothing.
_tensors: dict[tuple[int, int, Operand], Any] = {}
_MAX_TENSORS = 4096
_lock = locks.lock()


def _tensor(index: int, operand: Operand, address: int) -> Any:
    key = (index, address, operand)
    found = _tensors.get(key)
    if found is None:
        import torch

        capsule = dlpack.export_tensor(
            operand.dtype, operand.sizes, operand.strides, address, (dlpack.CUDA, index), None
        )
        found = torch.from_dlpack(capsule)
        with _lock:
            if len(_tensors) >= _MAX_TENSORS:
                _tensors.clear()
            _tensors[key] = found
    return found


# --- ops --------------------------------------------------------------------------------------------------------------


def _matmul(tensors: Tensors, numbers: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    import torch

    torch.matmul(tensors["arg1"], tensors["arg2"], out=outputs[0])


def _linear(tensors: Tensors, numbers: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    import torch

    torch.ops.aten.linear.out(tensors["arg1"], tensors["arg2"], tensors.get("bias"), out=outputs[0])


_OPS: dict[str, Callable[[Tensors, Mapping[str, Any], Sequence[Any]], None]] = {
    "matmul": _matmul,
    "linear": _linear,
}
