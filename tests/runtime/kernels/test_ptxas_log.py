"""The parser against logs that NVRTC 12.9.86 and 13.0.88 really wrote, and against the NVRTC at hand."""

import pytest

from fuser.runtime.kernels import nvrtc
from fuser.runtime.kernels.compiled_kernel import Resources
from fuser.runtime.kernels.ptxas_log import clean_log, parse_ptxas_log

LOG_12_9 = b"""\
user.cu(4): warning #177-D: variable "unused" was declared but never referenced
  extern "C" __global__ void first(float* y, int n) { __shared__ float s[128]; int unused; }
                                                                                   ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

ptxas info    : Overriding maximum register limit 256 for 'first' with  32 of maxrregcount option
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'fourth' for 'sm_90a'
ptxas info    : Function properties for fourth
ptxas         .     256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 256 bytes cumulative stack size
ptxas info    : Compile time = 20.085 ms
ptxas info    : Compiling entry function 'third' for 'sm_90a'
ptxas info    : Function properties for third
ptxas         .     64 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 64 bytes cumulative stack size
ptxas info    : Compile time = 3.853 ms
ptxas info    : Function properties for _Z6helperPfi
ptxas         .     0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
ptxas         .     1408 bytes stack frame, 1852 bytes spill stores, 2012 bytes spill loads
ptxas info    : Used 64 registers, used 0 barriers, 1408 bytes cumulative stack size
ptxas info    : Compile time = 104.523 ms
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 512 bytes smem, 360 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 2.153 ms
\0\0"""
LOG_13_0 = b"""\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1sIfLi4EEvPT_i' for 'sm_90a'
ptxas info    : Function properties for _Z1sIfLi4EEvPT_i
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : Compile time = 1.403 ms
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 512 bytes smem
ptxas info    : Compile time = 1.715 ms
\0\0"""


def test_entries_of_nvrtc_12_9() -> None:
    assert parse_ptxas_log(clean_log(LOG_12_9)) == {
        "fourth": Resources(32, 0, 256, 0),
        "third": Resources(32, 12, 64, 0),  # the spills of the function that it calls
        "second": Resources(64, 2012, 1408, 0),
        "first": Resources(10, 0, 0, 512, 368),
    }


def test_entries_of_nvrtc_13_0() -> None:
    assert parse_ptxas_log(clean_log(LOG_13_0)) == {
        "_Z1sIfLi4EEvPT_i": Resources(10, 0, 0, 0),
        "first": Resources(10, 0, 0, 512),
    }


def test_entry_without_registers_is_left_out() -> None:
    assert parse_ptxas_log("ptxas info    : Compiling entry function 'k' for 'sm_90a'\nptxas fatal   : Aborted") == {}


def test_nul_in_the_middle_cuts_nothing() -> None:
    log = clean_log(b"warning: first\n\0ptxas fatal   : the rest\n\0\0")
    assert log == "warning: first\n\nptxas fatal   : the rest"


SOURCE = """
extern "C" __global__ void shared_memory(float* y) {
    __shared__ float s[128];
    s[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void local_array(float* y, int n) {
    float a[64];
    for (int i = 0; i < 64; ++i) a[i] = y[i];
    for (int i = 0; i < 64; ++i) y[i] = a[(i * n) & 63];
}
template <class T> __global__ void instance(T* y) { *y = 1; }
"""


def test_nvrtc_at_hand() -> None:
    result = nvrtc.compile_to_cubin(SOURCE, ("shared_memory", "local_array", "instance<int>"), "sm_90a")
    assert result.resources["shared_memory"].static_shared_bytes == 512
    assert result.resources["local_array"].stack_bytes == 256
    assert result.resources["local_array"].spill_bytes == 0
    assert result.resources["instance<int>"].registers > 0
    assert result.lowered["instance<int>"].startswith("_Z")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_every_architecture_reports(arch: str) -> None:
    result = nvrtc.compile_to_cubin(SOURCE, ("local_array",), arch)
    assert result.resources["local_array"].stack_bytes == 256
