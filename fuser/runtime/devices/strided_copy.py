"""Copies between two layouts of one shape.

Equal dense layouts are one block of bytes (`Device.copy`). Everything else: on a GPU a small kernel of our own, one text
per element width and rank, compiled on first use (any layout in one launch, where a row-by-row `cuMemcpy2D` would take
a call for each row); on the simulator, NumPy on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from fuser.ir.ops.dtypes import DataType
from fuser.runtime.devices.device import Device
from fuser.runtime.devices.host_bytes import read_elements, strided_view
from fuser.runtime.kernels.compiled_kernel import CompiledKernel, content_hash
from fuser.runtime.launch import Launch
from fuser.runtime.layouts import element_span

_BLOCK = 256
_MAX_GRID = 2**31 - 1
_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long", 16: "ulonglong2"}


def is_same_dense_layout(sizes: Sequence[int], first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether both strides store the shape alike and without gaps or overlaps; dimensions of extent 1 do not count."""
    dims = sorted((s, t, n) for n, s, t in zip(sizes, first, second, strict=True) if n != 1)
    expected = 1
    for s, t, n in dims:
        if s != expected or t != expected:
            return False
        expected *= n
    return True


def copy_strided(
    device: Device,
    dtype: DataType,
    sizes: Sequence[int],
    dst: int,
    dst_strides: Sequence[int],
    src: int,
    src_strides: Sequence[int],
    stream: int,
) -> None:
    """Copy elementwise within the device. Strides in elements, those of `dst` not negative; the two do not overlap."""
    if 0 in sizes:
        return
    if device.kind != "cuda":
        _copy_on_host(device, dtype, sizes, dst, dst_strides, src, src_strides, stream)
        return
    dims = collapse_dims(sizes, dst_strides, src_strides)
    total = 1
    for n, _, _ in dims:
        total *= n
    kernel = strided_copy_kernel(dtype.itemsize, len(dims), device.info.arch)
    grid = min(-(-total // _BLOCK), _MAX_GRID)
    arguments = [dst, src, total, *(v for dim in dims for v in dim)]
    device.launch(kernel, Launch((grid, 1, 1), (_BLOCK, 1, 1)), arguments, stream)


def _copy_on_host(
    device: Device,
    dtype: DataType,
    sizes: Sequence[int],
    dst: int,
    dst_strides: Sequence[int],
    src: int,
    src_strides: Sequence[int],
    stream: int,
) -> None:
    import numpy as np

    source = np.zeros(element_span(sizes, src_strides) * dtype.itemsize, np.uint8)
    read_elements(device, dtype, sizes, src_strides, src, source, 0, stream)
    values = strided_view(source, dtype, sizes, src_strides)
    # Run by run of consecutive elements of `dst`, so that what lies between them is neither read nor written.
    run = max((d for d in range(len(sizes)) if dst_strides[d] == 1), key=lambda d: sizes[d], default=None)
    order = [d for d in range(len(sizes)) if d != run] + ([] if run is None else [run])
    values = values.transpose(order)
    outer = [sizes[d] for d in order[: len(order) - (run is not None)]]
    steps = [dst_strides[d] for d in order]
    for index in np.ndindex(*outer):
        offset = sum(i * s for i, s in zip(index, steps, strict=False))
        device.copy_from_host(dst + offset * dtype.itemsize, np.ascontiguousarray(values[index]), stream)


def collapse_dims(
    sizes: Sequence[int], dst_strides: Sequence[int], src_strides: Sequence[int]
) -> list[tuple[int, int, int]]:
    """(extent, dst stride, src stride) of as few dimensions as describe the copy, slowest in `dst` first."""
    dims = [(n, a, b) for n, a, b in zip(sizes, dst_strides, src_strides, strict=True) if n != 1]
    dims.sort(key=lambda dim: (-dim[1], -abs(dim[2])))
    merged: list[tuple[int, int, int]] = []
    for n, a, b in dims:
        if merged:
            outer, outer_a, outer_b = merged[-1]
            if outer_a == n * a and outer_b == n * b:
                merged[-1] = (outer * n, a, b)
                continue
        merged.append((n, a, b))
    return merged


def strided_copy_source(itemsize: int, rank: int) -> str:
    """CUDA text of the copy for one element width in bytes and number of dimensions."""
    word = _WORDS[itemsize]
    parameters = "".join(f", long long n{d}, long long a{d}, long long b{d}" for d in range(rank))
    steps = "".join(
        f"        dst_offset += rest % n{d} * a{d}; src_offset += rest % n{d} * b{d}; rest /= n{d};\n"
        for d in reversed(range(rank))
    )
    return (
        f'extern "C" __global__ void __launch_bounds__({_BLOCK})\n'
        f"copy_strided_{itemsize}_{rank}({word}* dst, const {word}* src, long long total{parameters}) {{\n"
        f"    for (long long i = blockIdx.x * {_BLOCK}LL + threadIdx.x; i < total; i += gridDim.x * {_BLOCK}LL) {{\n"
        "        long long rest = i, dst_offset = 0, src_offset = 0;\n"
        f"{steps}"
        "        dst[dst_offset] = src[src_offset];\n"
        "    }\n"
        "}\n"
    )


@cache
def strided_copy_kernel(itemsize: int, rank: int, arch: str) -> CompiledKernel:
    """The copy kernel; its binary is made when it is first launched."""
    from fuser.runtime.kernels.raw_signature import RawKind, RawParameter

    word = _WORDS[itemsize]
    name = "" if itemsize == 16 else f"uint{8 * itemsize}"
    dst = RawParameter("dst", f"{word}*", RawKind.pointer, name, 8, 8, itemsize)
    src = RawParameter("src", f"const {word}*", RawKind.pointer, name, 8, 8, itemsize, is_const=True)
    numbers = ["total", *(f"{letter}{d}" for d in range(rank) for letter in "nab")]
    scalars = [RawParameter(n, "long long", RawKind.scalar, "int64", 8, 8) for n in numbers]
    source = strided_copy_source(itemsize, rank)
    entry = f"copy_strided_{itemsize}_{rank}"
    return CompiledKernel(
        source=source,
        entry=entry,
        arch=arch,
        cubin=None,
        kernel_ir=None,
        parameters=(dst, src, *scalars),
        plan=None,
        facts=frozenset(),
        resources=None,
        max_block_size=0,
        register_limit=255,
        options=(),
        nvrtc_version=None,
        content_hash=content_hash(source, (), arch, None, entry),
        bounded=False,
        fixed_bounds=_BLOCK,
    )
