"""`RtcKernel` with an entry that its source does not have."""

from __future__ import annotations

import pytest

from fuser.errors import CompilationError
from fuser.ir.device_info import H200
from fuser.runtime.kernels.raw_signature import kernel_names
from fuser.runtime.rtc_kernel import RtcKernel

SOURCE = """
// __global__ void commented(int n) {}
#define MAKE(name) extern "C" __global__ void name(float* y) { y[0] = 1; }
MAKE(made)
namespace inner { template <class T, int N> __global__ void scale(T* y) { y[0] *= N; } }
extern "C" __global__ void __launch_bounds__(256, 2) axpy(float a, float* y) { y[0] += a; }
__device__ float helper(float x) { return x; }
__global__ __attribute__((noinline)) void
on_two_lines(float* y) { y[0] = helper(2); }
"""


def test_kernel_names() -> None:
    assert kernel_names(SOURCE) == ("name", "scale", "axpy", "on_two_lines")
    assert kernel_names("__device__ void f() {}") == ()


@pytest.mark.parametrize(
    ("source", "entry", "text"),
    [
        (
            SOURCE,
            "axpi",
            "the source has no __global__ function 'axpi', it has name, scale, axpy, on_two_lines; did you mean 'axpy'?",
        ),
        (
            SOURCE,
            "nothing_like_it",
            "the source has no __global__ function 'nothing_like_it', it has name, scale, axpy, on_two_lines",
        ),
        (
            "axpy.cu",
            "axpy",
            "the source has no __global__ function 'axpy', it has none: source is the CUDA text itself, not a path of it",
        ),
    ],
)
def test_an_entry_that_is_not_there(source: str, entry: str, text: str) -> None:
    with pytest.raises(CompilationError) as caught:
        RtcKernel(source, entry, H200).compile()
    assert caught.value.message == text
    assert "RtcKernel(source, entry, H200)" in str(caught.value)
    assert entry in caught.value.log


@pytest.mark.parametrize("entry", ["axpy", "made", "on_two_lines", "inner::scale<float, 2>"])
def test_entries_that_are_there(entry: str) -> None:
    assert RtcKernel(SOURCE, entry, H200).compile().kernel.cubin


def test_another_error_is_told_as_it_is() -> None:
    """A text that does not compile may lose its kernels on the way."""
    with pytest.raises(CompilationError) as caught:
        RtcKernel(SOURCE + "int broken = ;\n", "axpi", H200).compile()
    assert "expected an expression" in caught.value.message
