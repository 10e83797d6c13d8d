"""Library calls by torch: tensors over the memory of slots, without copies, and torch's own functions writing into them.

The streams are the caller's: work goes to the stream that it is given, whatever torch's current one is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from fuser import locks
from fuser.errors import LaunchError
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays import dlpack
from fuser.runtime.arrays.torch_captures import CaptureMemory, captured
from fuser.runtime.devices.streams import LEGACY
from fuser.runtime.kernels.library_calls import LibraryCall, Operand

if TYPE_CHECKING:
    from fuser.runtime.devices.device import Device

Tensors = Mapping[str, Any]


def run(device: Device, call: LibraryCall, addresses: Sequence[int], stream: int) -> None:
    """Enqueue a call on `stream`. `addresses`: of its inputs, then of its outputs."""
    import torch

    with ExitStack() as stack:
        _enter(stack, device)
        if int(torch.cuda.current_stream(device.index).cuda_stream) != stream:
            stack.enter_context(torch.cuda.stream(_stream(device, stream)))
        _compute(call, *_operands(device, call, addresses))


def why_not_recorded(device: Device, call: LibraryCall) -> str:
    """Why a call is no part of a graph, and is made at each launch; empty for one that can be."""
    import torch

    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
        return f"torch {torch.__version__} does not give out the graphs that it captures"
    if dict(call.numbers).get("dropout_p"):
        return "each launch would draw the same random numbers"
    if call.op == "grouped_mm" and not _takes_groups(device.index, call.inputs[0].dtype, call.inputs[2].sizes[0]):
        return _READS_OFFSETS
    return ""


class Captured:
    """A call as a graph of CUDA, with the memory that it takes meanwhile; `graph` is the handle of a cudaGraph_t."""

    def __init__(self, device: Device, call: LibraryCall, addresses: Sequence[int], memory: CaptureMemory) -> None:
        with ExitStack() as stack:
            _enter(stack, device)
            tensors, numbers, outputs = _operands(device, call, addresses)
            if call.op in ("matmul", "linear") or (call.op.startswith("sdpfa") and not _is_flash(tensors, numbers)):
                memory.prepare_products()
            self._held: Any = captured(
                memory.lane.stream, memory.pool, lambda: _compute(call, tensors, numbers, outputs)
            )
        self.graph = int(self._held.raw_cuda_graph())
        self._memory = memory


def _enter(stack: ExitStack, device: Device) -> None:
    """What calls are made in, whatever the caller is in: this device, and types that are those of the operands."""
    import torch

    stack.enter_context(torch.no_grad())
    stack.enter_context(torch.cuda.device(device.index))
    if torch.is_autocast_enabled():
        stack.enter_context(torch.autocast("cuda", enabled=False))


def _stream(device: Device, handle: int) -> Any:
    import torch

    if handle in LEGACY:
        return torch.cuda.default_stream(device.index)
    return torch.cuda.ExternalStream(handle, device=device.index)


def _operands(
    device: Device, call: LibraryCall, addresses: Sequence[int]
) -> tuple[Tensors, Mapping[str, Any], Sequence[Any]]:
    """(inputs by name, numbers, outputs) of a call."""
    pairs = list(zip((*call.inputs, *call.outputs), addresses, strict=True))
    tensors = [_tensor(device.index, operand, address) for operand, address in pairs]
    named = {o.name: t for o, t in zip(call.inputs, tensors, strict=False)}
    return named, dict(call.numbers), tensors[len(call.inputs) :]


def _compute(call: LibraryCall, tensors: Tensors, numbers: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    _OPS[call.op](tensors, numbers, outputs)


# Tensors over memory that others own, by where and how it lies: an address that comes again, as those of a caching allocator
# do, has its tensor already. They hold nothing.
_tensors: dict[tuple[int, int, Operand], Any] = {}
_MAX_TENSORS = 4096
_KIND = dlpack.CUDA
_lock = locks.lock()


def _tensor(index: int, operand: Operand, address: int) -> Any:
    key = (index, address, operand)
    found = _tensors.get(key)
    if found is None:
        import torch

        capsule = dlpack.export_tensor(operand.dtype, operand.sizes, operand.strides, address, (_KIND, index), None)
        # What is made in inference mode cannot be written outside of it.
        with torch.inference_mode(False):
            found = torch.from_dlpack(capsule)
        with _lock:
            if len(_tensors) >= _MAX_TENSORS:
                _tensors.clear()
            _tensors[key] = found
    return found


# --- ops --------------------------------------------------------------------------------------------------------------


def _matmul(tensors: Tensors, numbers: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    import torch

    a, b, out = tensors["arg1"], tensors["arg2"], outputs[0]
    if a.ndim == 1 and b.ndim == 2:
        # `torch.matmul` would make a matrix of the result that it is given, in another layout.
        torch.mm(a[None], b, out=out[None])
    elif out.is_contiguous():
        torch.matmul(a, b, out=out)
    else:
        # Where it makes a product of matrices of more dims than two, it takes a result for one that is dense.
        out.copy_(torch.matmul(a, b))


def _linear(tensors: Tensors, numbers: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    """One product of two matrices, as torch's own linear makes of it: the bias is added before anything is rounded."""
    import torch

    a, weight, bias, out = tensors["arg1"], tensors["arg2"].t(), tensors.get("bias"), outputs[0]
    rows = (
        a.reshape(-1, a.shape[-1]) if a.numel() else a.new_empty((out.numel() // max(weight.shape[1], 1), a.shape[-1]))
    )
    target = _as_rows(out)
    result = out.new_empty((rows.shape[0], weight.shape[1])) if target is None else target
    if bias is None:
        torch.mm(rows, weight, out=result)
    else:
        torch.addmm(bias, rows, weight, out=result)
    if target is None:
        out.copy_(result.view(out.shape))


def _as_rows(out: Any) -> Any:
    """A result as a matrix of its last dim, in place; None if it does not lie so."""
    try:
        return out.view(-1, out.shape[-1]) if out.numel() else None
    except RuntimeError:
        return None


_READS_OFFSETS = "the host reads where groups end, but for BFloat16 on compute capability 9 and 10"
# The kernel has a thread for each.
_MOST_GROUPS = 1024


def _takes_groups(index: int, dtype: DataType, groups: int) -> bool:
    """Whether torch has a kernel of groups."""
    import torch

    return (
        dtype is DataType.BFloat16
        and groups <= _MOST_GROUPS
        and torch.cuda.get_device_capability(index)[0] in (9, 10)
        and hasattr(torch, "_grouped_mm")
    )


def _grouped_mm(tensors: Tensors, numbers: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    import torch

    a, b, offsets, out = tensors["mat1"], tensors["mat2"], tensors["offsets"], outputs[0]
    if not a.numel() or not b.numel() or not offsets.numel():
        out.zero_()
    elif a.dtype is torch.bfloat16 and _takes_groups(a.get_device(), DataType.BFloat16, offsets.numel()):
        _groups_at_once(a, b, offsets, out)
    else:
        _group_by_group(a, b, offsets, out)


def _groups_at_once(a: Any, b: Any, offsets: Any, out: Any) -> None:
    """One kernel, given such layouts that groups begin at multiples of 16 bytes wherever they are cut: it would stop the
    device with an error."""
    import torch

    grouped: Any = torch._grouped_mm  # noqa: SLF001
    if a.ndim == b.ndim:
        out.copy_(grouped(_with_dense_columns(a), _with_dense_rows(b), offs=offsets))
    elif a.ndim == 3:
        # Of the transposed problem it is rows that are cut.
        out.copy_(grouped(_with_dense_columns(b).t(), _with_dense_rows(a).transpose(1, 2), offs=offsets).t())
    else:
        dense = _with_dense_columns if b.stride(-2) == 1 else _with_dense_rows
        out.copy_(grouped(_with_dense_rows(a), dense(b), offs=offsets))


def _with_dense_rows(t: Any) -> Any:
    """[.., R, C] with dense rows that begin at multiples of 16 bytes: itself or a copy."""
    many = 16 // t.itemsize
    *outer, down, along = t.stride()
    lies_so = along == 1 and down >= t.shape[-1] and not any(s % many for s in (*outer, down))
    if lies_so and t.data_ptr() % 16 == 0:
        return t
    width = t.shape[-1] + -t.shape[-1] % many
    return t.new_empty((*t.shape[:-1], width))[..., : t.shape[-1]].copy_(t)


def _with_dense_columns(t: Any) -> Any:
    return _with_dense_rows(t.transpose(-1, -2)).transpose(-1, -2)


def _group_by_group(a: Any, b: Any, offsets: Any, out: Any) -> None:
    import torch

    if offsets.is_cuda and torch.cuda.is_current_stream_capturing():
        raise LaunchError(f"grouped_mm is no part of a graph: {_READS_OFFSETS}")
    ends = offsets.tolist()
    for group, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if a.ndim == b.ndim:
            torch.matmul(a[:, first:end], b[first:end], out=out[group])
        elif a.ndim == 3:
            torch.matmul(a[group], b[:, first:end], out=out[:, first:end])
        else:
            torch.matmul(a[first:end], b[group], out=out[first:end])


def _topk(tensors: Tensors, numbers: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    import torch

    options = {name: numbers[name] for name in ("dim", "largest", "sorted")}
    arg, (values, indices) = tensors["arg"], outputs
    if arg.dtype is torch.bool:
        arg, values = arg.view(torch.uint8), values.view(torch.uint8)
    torch.topk(arg, numbers["k"], **options, out=(values, indices))


def _argsort(tensors: Tensors, numbers: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    import torch

    options = {name: numbers[name] for name in ("dim", "descending", "stable")}
    outputs[0].copy_(torch.argsort(tensors["arg"], **options))


def _scatter(tensors: Tensors, numbers: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    out, index = outputs[0], tensors["index"].long()
    out.copy_(tensors["arg"])
    src = tensors.get("src")
    out.scatter_(numbers["dim"], index, numbers["value"] if src is None else src)


# --- attention --------------------------------------------------------------------------------------------------------


def _is_flash(tensors: Tensors, numbers: Mapping[str, Any]) -> bool:
    """Whether flash attention takes these operands."""
    import torch

    query, value = tensors["query"], tensors["value"]
    # Rows and columns are aligned at their ends there, where they are not as many.
    is_square = not numbers.get("is_causal") or query.shape[-2] == value.shape[-2]
    fits = query.shape[-1] == value.shape[-1] <= 256 and 0 not in query.shape and 0 not in value.shape
    plain = tensors.get("bias") is None and tensors.get("mask") is None
    is_short = query.dtype in (torch.float16, torch.bfloat16)
    return plain and fits and is_square and is_short and _has_flash(query.get_device())


def _has_flash(index: int) -> bool:
    import torch

    is_built = torch.backends.cuda.is_flash_attention_available()
    return bool(is_built) and torch.cuda.get_device_capability(index) >= (8, 0)


def _flat(t: Any) -> Any:
    """[N.., H, L, E] as [N, H, L, E], the last dim a multiple of 8, and rows that begin at multiples of 16 bytes, as flash
    attention asks."""
    import torch

    four = t.flatten(0, -4)
    rest = -four.shape[-1] % 8
    if rest:
        return torch.nn.functional.pad(four, (0, rest))
    *outer, along = four.stride()
    lies_so = along == 1 and not any(s % 8 for n, s in zip(four.shape, outer, strict=False) if n > 1)
    return four if lies_so and four.data_ptr() % 16 == 0 else four.clone(memory_format=torch.contiguous_format)


def _scale(tensors: Tensors, numbers: Mapping[str, Any]) -> float:
    scale = numbers.get("scale")
    return tensors["query"].shape[-1] ** -0.5 if scale is None else scale


def _put(out: Any, found: Any) -> None:
    out.copy_(found[..., : out.shape[-1]].reshape(out.shape))


def _sdpfa_fwd(tensors: Tensors, numbers: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    import torch

    out, log_sums, seed, offset = outputs
    if not _is_flash(tensors, numbers):
        _refuse_dropout(numbers)
        scores = _scores(tensors, numbers)
        sums = torch.logsumexp(scores, -1)
        log_sums.copy_(sums)
        out.copy_(_weights(scores, sums) @ tensors["value"].to(scores.dtype))
        seed.zero_()
        offset.zero_()
        return
    query, key, value = (_flat(tensors[name]) for name in ("query", "key", "value"))
    found = torch.ops.aten._scaled_dot_product_flash_attention(  # noqa: SLF001
        query,
        key,
        value,
        numbers.get("dropout_p") or 0.0,
        bool(numbers.get("is_causal")),
        return_debug_mask=False,
        scale=_scale(tensors, numbers),
    )
    _put(out, found[0])
    log_sums.copy_(found[1].reshape(log_sums.shape))
    # The state is two numbers in one tensor, and what comes behind it is not used. Without dropout nobody writes it.
    offset.zero_()
    if numbers.get("dropout_p"):
        seed.copy_(found[6])
    else:
        seed.zero_()


def _sdpfa_bwd(tensors: Tensors, numbers: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    import torch

    if not _is_flash(tensors, numbers):
        _refuse_dropout(numbers)
        _composed_backward(tensors, numbers, outputs)
        return
    names = ("grad_output", "query", "key", "value", "output")
    grad, query, key, value, out = (_flat(tensors[name]) for name in names)
    found = torch.ops.aten._scaled_dot_product_flash_attention_backward(  # noqa: SLF001
        grad,
        query,
        key,
        value,
        out,
        tensors["logsumexp"].reshape(query.shape[:-1]).contiguous(),
        None,
        None,
        query.shape[-2],
        key.shape[-2],
        numbers.get("dropout_p") or 0.0,
        bool(numbers.get("is_causal")),
        tensors["philox_seed"],
        tensors["philox_offset"],
        scale=_scale(tensors, numbers),
    )
    for target, gradient in zip(outputs, found, strict=True):
        _put(target, gradient)


def _scores(tensors: Tensors, numbers: Mapping[str, Any]) -> Any:
    """Scaled products of queries and keys in Float or better, what is not seen at minus infinity."""
    import torch

    query, key = tensors["query"], tensors["key"]
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    scores = (query.to(wide) @ key.to(wide).transpose(-1, -2)) * _scale(tensors, numbers)
    bias, mask = tensors.get("bias"), tensors.get("mask")
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if numbers.get("is_causal"):
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    return scores


def _weights(scores: Any, sums: Any) -> Any:
    import torch

    rows = sums[..., None]
    return torch.where(torch.isneginf(rows), 0.0, torch.exp(scores - rows))


def _composed_backward(tensors: Tensors, numbers: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    """What flash attention does not take, step by step."""
    import torch

    scores = _scores(tensors, numbers)
    wide = scores.dtype
    # What was kept is in float: too few digits for doubles.
    sums = torch.logsumexp(scores, -1) if wide is torch.float64 else tensors["logsumexp"]
    weights = _weights(scores, sums)
    names = ("grad_output", "query", "key", "value", "output")
    grad, query, key, value, out = (tensors[name].to(wide) for name in names)
    inner = (grad * out).sum(-1, keepdim=True)
    slopes = weights * (grad @ value.transpose(-1, -2) - inner) * _scale(tensors, numbers)
    outputs[0].copy_(slopes @ key)
    outputs[1].copy_(slopes.transpose(-1, -2) @ query)
    outputs[2].copy_(weights.transpose(-1, -2) @ grad)


def _refuse_dropout(numbers: Mapping[str, Any]) -> None:
    if numbers.get("dropout_p"):
        raise LaunchError(
            "dropout within attention needs operands that flash attention takes: Half or BFloat16, heads of one size of at "
            "most 256, no bias and no mask, and as many keys as queries if is_causal"
        )


_OPS: dict[str, Callable[[Tensors, Mapping[str, Any], Sequence[Any]], None]] = {
    "argsort": _argsort,
    "grouped_mm": _grouped_mm,
    "linear": _linear,
    "matmul": _matmul,
    "scatter": _scatter,
    "sdpfa_bwd": _sdpfa_bwd,
    "sdpfa_fwd": _sdpfa_fwd,
    "topk": _topk,
}
