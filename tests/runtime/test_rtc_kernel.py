"""Raw kernels: what the compiler tells of them, and a table of right and wrong calls.

Arguments are checked before a device is asked for. So where there is no GPU a right call ends in NoDeviceError and a wrong
one in its own error; `tests/gpu/test_rtc_kernel.py` runs right calls for real.
"""

import pickle
from typing import Any

import pytest

from fuser.errors import CompilationError, InputTypeError, LaunchError, LaunchTypeError, NoDeviceError
from fuser.ir.device_info import DeviceInfo
from fuser.runtime import driver
from fuser.runtime.kernels.launch_params import LaunchParams
from fuser.runtime.kernels.variants import KernelVariants
from fuser.runtime.rtc_kernel import RtcKernel
from tests.runtime.raw_calls import ONE, RIGHT, SOURCE, WRONG, D, f32

_kernels: dict[str, RtcKernel] = {}


def compiled(entry: str) -> RtcKernel:
    if entry not in _kernels:
        _kernels[entry] = RtcKernel(SOURCE, entry).compile()
    return _kernels[entry]


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "device_count", lambda: 0)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(("entry", "args"), RIGHT)
def test_right_calls_get_as_far_as_the_device(entry: str, args: tuple[Any, ...]) -> None:
    kernel = compiled(entry)
    with pytest.raises(NoDeviceError, match=f"running {entry} needs a GPU, and there is none"):
        kernel.run(args, ONE)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(("entry", "args", "error", "text"), WRONG)
def test_wrong_calls_name_the_parameter(entry: str, args: tuple[Any, ...], error: type[Exception], text: str) -> None:
    kernel = compiled(entry)
    with pytest.raises(error) as caught:
        kernel.run(args, ONE)
    assert not isinstance(caught.value, NoDeviceError)
    assert text in str(caught.value)


def test_the_table_is_large_enough() -> None:
    assert len(RIGHT) + len(WRONG) >= 40


@pytest.mark.usefixtures("no_gpu")
def test_kernel_of_another_device() -> None:
    kernel = RtcKernel(SOURCE, "scale")
    kernel.compile()
    kernel._asked = 1  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(LaunchError, match="the array is on cuda:0, and the kernel runs on cuda:1"):
        kernel.run((D("<f4", (64,)), f32(), 2.0, 64), ONE)


# --- sizes ---


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("launch", "text"),
    [
        (LaunchParams(1, 1, 1, 1025, 1, 1), "a block has 1 to 1024 threads along x, not 1025"),
        (LaunchParams(1, 1, 1, 64, 32, 1), "a block has at most 1024 threads, not 2048"),
        (LaunchParams(1, 1, 1, 1, 1, 65), "a block has 1 to 64 threads along z, not 65"),
        (LaunchParams(2**31, 1, 1, 1, 1, 1), "the grid has 1 to 2147483647 blocks along x, not 2147483648"),
        (LaunchParams(1, 65536, 1, 1, 1, 1), "the grid has 1 to 65535 blocks along y, not 65536"),
        (LaunchParams(1, 1, 65536, 1, 1, 1), "blocks along z"),
        (LaunchParams(shared=232449), "a block has up to 232448 bytes of shared memory, not 232449"),
        (
            LaunchParams(3, 1, 1, 1, 1, 1, cluster=(2, 1, 1)),
            "the grid of 3 blocks along x is no multiple of the cluster's 2",
        ),
    ],
)
def test_sizes_are_checked_before_the_device(launch: LaunchParams, text: str) -> None:
    with pytest.raises(LaunchError) as caught:
        compiled("nothing").run((), launch)
    assert text in str(caught.value)


@pytest.mark.usefixtures("no_gpu")
def test_block_above_the_bounds_of_the_source() -> None:
    kernel = compiled("narrow")
    assert kernel.kernel.fixed_bounds == 128
    with pytest.raises(
        LaunchError, match="narrow: a block of 256 threads is above the launch bounds of its source, 128"
    ):
        kernel.run((f32(),), LaunchParams(1, 1, 1, 256, 1, 1))
    with pytest.raises(NoDeviceError):
        kernel.run((f32(),), LaunchParams(1, 1, 1, 128, 1, 1))


@pytest.mark.usefixtures("no_gpu")
def test_arguments_that_are_no_list() -> None:
    with pytest.raises(LaunchTypeError, match="args is a list or tuple of arguments, got ndarray"):
        compiled("nothing").run(f32(), ONE)  # type: ignore[arg-type]
    with pytest.raises(LaunchTypeError, match="launch_params is a LaunchParams, got tuple"):
        compiled("nothing").run((), (1, 1))  # type: ignore[arg-type]


# --- compiling ---


def test_compiled_kernel_of_a_raw_source() -> None:
    kernel = compiled("fill<double, 8>").kernel
    assert kernel.source == SOURCE
    assert kernel.name_expression == "fill<double, 8>"
    assert kernel.entry.startswith("_Z4fillIdLi8EE")
    assert kernel.cubin is not None
    assert kernel.kernel_ir is None
    assert kernel.resources is not None
    assert kernel.resources.registers > 0
    assert not kernel.bounded
    assert kernel.max_block_size == 1024
    assert [p.name for p in compiled("fill<double, 8>").parameters] == ["y", "value"]


def test_bounds_that_follow_the_block() -> None:
    kernel = compiled("growing").kernel
    assert kernel.bounded
    assert kernel.fixed_bounds is None
    assert kernel.max_block_size == 256
    variants = KernelVariants()
    assert variants.binary_for(kernel, 256).cubin == kernel.cubin
    assert variants.binary_for(kernel, 1024).max_threads == 1024
    assert variants.counters().compiles == 1


def test_variant_of_a_template_instance() -> None:
    source = (
        """template <class T> __global__ void __launch_bounds__(FUSER_MAX_THREADS) fill(T* y) { y[threadIdx.x] = 1; }"""
    )
    kernel = RtcKernel(source, "fill<float>").compile().kernel
    binary = KernelVariants().binary_for(kernel, 1024)
    assert binary.entry == kernel.entry


def test_raw_kernel_can_be_pickled() -> None:
    kernel = compiled("with_struct").kernel
    again = pickle.loads(pickle.dumps(kernel))
    assert again.cubin == kernel.cubin
    assert again.parameters == kernel.parameters


def test_compile_for_a_device_info() -> None:
    kernel = RtcKernel(SOURCE, "scale", device=DeviceInfo.preset("sm_80")).compile()
    assert kernel.kernel.arch == "sm_80"


def test_compile_error_quotes_the_users_line_with_a_caret() -> None:
    source = 'extern "C" __global__ void k(float* y) {\n    y[0] = foo;\n}\n'
    with pytest.raises(CompilationError) as caught:
        RtcKernel(source, "k").compile()
    assert 'k.cu(2): error: identifier "foo" is undefined\n      y[0] = foo;\n             ^\n' in str(caught.value)
    assert "fuser_signature" not in str(caught.value)


def test_a_header_that_is_not_found() -> None:
    source = '#include "mine.h"\nextern "C" __global__ void k(float* y) {}\n'
    with pytest.raises(CompilationError) as caught:
        RtcKernel(source, "k").compile()
    assert caught.value.message.endswith(
        "\nNVRTC looks for headers in no folder by itself: the option '--include-path=<folder of mine.h>' names one."
    )


def test_overloads_ask_for_a_signature() -> None:
    source = "__global__ void k(float* y) { *y = 1; }\n__global__ void k(int* y, int n) { *y = n; }"
    with pytest.raises(CompilationError, match="several functions are called k; pass signature=, as in"):
        RtcKernel(source, "k").compile()
    first = RtcKernel(source, "k", signature="float* y").compile()
    second = RtcKernel(source, "k", signature="int*, int").compile()
    assert (first.kernel.entry, second.kernel.entry) == ("_Z1kPf", "_Z1kPii")
    assert [p.type_name for p in second.parameters] == ["int*", "int"]


def test_type_without_a_value_asks_for_a_signature() -> None:
    source = "struct C { int a; };\n__global__ void k(int C::*m, C* c) { c->*m = 1; }"
    with pytest.raises(
        CompilationError, match=r"parameter 0 .* of k has a type that is not known here; pass signature="
    ):
        RtcKernel(source, "k").compile()
    kernel = RtcKernel(source, "k", signature="long long offset, void* c").compile()
    assert [(p.name, p.type_name) for p in kernel.parameters] == [("offset", "long long"), ("c", "void*")]


def test_signature_that_does_not_fit_the_binary() -> None:
    with pytest.raises(CompilationError, match="the signature of scale says float"):
        RtcKernel(SOURCE, "scale", signature="float y").compile()


def test_options_reach_nvrtc() -> None:
    source = 'extern "C" __global__ void k(REAL* y) { *y = 1; }'
    (parameter,) = RtcKernel(source, "k").compile(("-DREAL=double",)).parameters
    assert parameter.type_name == "double*"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("-arch=sm_80",), "option -arch=sm_80: the architecture is the device's"),
        (("--gpu-architecture=sm_80",), "the architecture is the device's"),
        (("-DFUSER_MAX_THREADS=7",), "this macro is set by the block size of the launch"),
        (("--maxrregcount=8",), "maxrregcount is a number of registers from 16 to 255, got '8'"),
        (("--maxrregcount",), "option --maxrregcount needs a number"),
        (("--bogus",), "unrecognized option --bogus"),
    ],
)
def test_wrong_options(options: tuple[str, ...], text: str) -> None:
    with pytest.raises(CompilationError) as caught:
        RtcKernel(SOURCE, "scale").compile(options)
    assert text in str(caught.value)


def test_options_are_no_text() -> None:
    with pytest.raises(InputTypeError, match="options is a sequence of texts, not one text"):
        RtcKernel(SOURCE, "scale").compile("-DX")


@pytest.mark.parametrize("options", [("--maxrregcount=24",), ("-maxrregcount", "24")])
def test_register_cap(options: tuple[str, ...]) -> None:
    kernel = RtcKernel(SOURCE, "scale").compile(options).kernel
    assert kernel.register_cap == 24
    assert kernel.options == ()
    assert kernel.resources is not None
    assert kernel.resources.registers <= 24
    assert KernelVariants().binary_for(kernel, 1024).cubin == kernel.cubin


def test_register_cap_beside_bounds_is_refused() -> None:
    for entry in ("narrow", "growing"):
        with pytest.raises(CompilationError, match=f"{entry} has bounds in its source, and NVRTC obeys those alone"):
            RtcKernel(SOURCE, entry).compile(("--maxrregcount=24",))


def test_run_before_compile() -> None:
    kernel = RtcKernel(SOURCE, "scale")
    assert repr(kernel) == "RtcKernel(entry='scale', not compiled)"
    with pytest.raises(LaunchError, match="RtcKernel scale is not compiled: call compile"):
        kernel.run((), ONE)


def test_source_and_entry_are_texts() -> None:
    with pytest.raises(InputTypeError, match="entry is a text, got str ''"):
        RtcKernel(SOURCE, "")
    with pytest.raises(InputTypeError, match="source is a text, got bytes"):
        RtcKernel(b"", "k")  # type: ignore[arg-type]


def test_compile_again_with_other_options() -> None:
    source = 'extern "C" __global__ void k(REAL* y) { *y = 1; }'
    kernel = RtcKernel(source, "k")
    first = kernel.compile(("-DREAL=double",)).kernel
    second = kernel.compile(("-DREAL=int",)).kernel
    assert first.content_hash != second.content_hash
    assert kernel.parameters[0].dtype == "int32"
