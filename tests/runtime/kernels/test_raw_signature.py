"""Parameters of raw kernels, as the compiler tells them."""

import pytest

from fuser.errors import CompilationError
from fuser.ir.device_info import DeviceInfo
from fuser.runtime.kernels import nvrtc
from fuser.runtime.kernels.raw_signature import (
    PROBE_THREADS,
    RawKind,
    RawSignature,
    parameter_names,
    probe_expression,
    probe_source,
    read_signature,
)
from fuser.runtime.rtc_kernel import RtcKernel


def signature_of(source: str, entry: str, given: str | None = None, options: tuple[str, ...] = ()) -> RawSignature:
    question = probe_expression(entry, given)
    flags = (*options, f"-DFUSER_MAX_THREADS={PROBE_THREADS}")
    answer = nvrtc.compile_to_ptx(probe_source(source), (entry, question), "sm_90a", flags)
    return read_signature(
        source, entry, answer.lowered[question], answer.lowered[entry], answer.cubin.decode(), given=given
    )


def types_of(signature: RawSignature) -> list[str]:
    return [p.type_name for p in signature.parameters]


def declared(parameters: str, before: str = "", entry: str = "k") -> RawSignature:
    return signature_of(f'{before}\nextern "C" __global__ void k({parameters}) {{}}', entry)


# parameters, text before them, type as told, NumPy name
TYPES = [
    ("float* y", "", "float*", "float32"),
    ("const float* __restrict__ y", "", "const float*", "float32"),
    ("float const* const y", "", "const float*", "float32"),
    ("volatile int* y", "", "int*", "int32"),
    ("real* y", "typedef double real;", "double*", "float64"),
    ("real y", "using real = float;", "float", "float32"),
    ("REAL* y", "#define REAL float", "float*", "float32"),
    ("REAL* y", "#ifdef ABSENT\n#define REAL int\n#else\n#define REAL float\n#endif", "float*", "float32"),
    ("ROW y", "#define ROW const float* const __restrict__", "const float*", "float32"),
    ("vec y", "typedef const unsigned char* vec;", "const unsigned char*", "uint8"),
    ("ns::index n", "namespace ns { using index = long long; }", "long long", "int64"),
    ("pair<int>::first n", "template <class T> struct pair { using first = T; };", "int", "int32"),
    ("decltype(1.0f) x", "", "float", "float32"),
    ("unsigned n", "", "unsigned int", "uint32"),
    ("unsigned long n", "", "unsigned long", "uint64"),
    ("size_t n", "", "unsigned long", "uint64"),
    ("short int n", "", "short", "int16"),
    ("char* y", "", "char*", "int8"),
    ("bool b", "", "bool", "bool"),
    ("void* y", "", "void*", ""),
    ("const void* y", "", "const void*", ""),
    ("float** y", "", "T**", ""),
    ("float4* y", "", "float4*", "float32"),
    ("const int2* y", "", "const int2*", "int32"),
    ("double y[4]", "", "double*", "float64"),
    ("bf16* y", "struct bf16 { unsigned short bits; };", "struct of 2 bytes*", ""),
    ("params p", "struct params { float a; double b; char c; };", "struct of 24 bytes", ""),
    ("params p", "struct __align__(16) params { float a; };", "struct of 16 bytes", ""),
    ("either p", "union either { float a; int b; };", "struct of 4 bytes", ""),
    ("opaque* p", "struct opaque;", "incomplete struct*", ""),
    ("float4 v", "", "float4 of 16 bytes", ""),
    ("mode m", "enum mode { a, b };", "int", "int32"),
    ("mode m", "enum class mode : unsigned char { a, b };", "unsigned char", "uint8"),
    ("mode* m", "enum class mode : long long { a, b };", "long long*", "int64"),
]


@pytest.mark.parametrize(("parameters", "before", "type_name", "dtype"), TYPES)
def test_types(parameters: str, before: str, type_name: str, dtype: str) -> None:
    (parameter,) = declared(parameters, before).parameters
    assert (parameter.type_name, parameter.dtype) == (type_name, dtype)


def test_sizes_of_what_pointers_point_to() -> None:
    y, s, v, p = declared("float4* y, s* b, void* v, float** p", "struct s { double a; char b; };").parameters
    assert (y.pointee, y.pointee_alignment, y.lanes) == (16, 16, 4)
    assert (s.pointee, s.pointee_alignment) == (16, 8)
    assert (v.pointee, v.pointee_alignment) == (0, 1)
    assert (p.pointee, p.pointee_alignment) == (8, 8)


def test_template_arguments() -> None:
    source = """
        namespace ns {
        template <class T, int N = 4, class U = const T>
        __global__ void __launch_bounds__(FUSER_MAX_THREADS, 1) scale(T* y, U* __restrict__ x, T a, int n = N) {
            if (n < N) y[n] = a * x[n];
        }
        }
    """
    plain = signature_of(source, "ns::scale<double>")
    assert types_of(plain) == ["double*", "const double*", "double", "int"]
    assert [p.name for p in plain.parameters] == ["y", "x", "a", "n"]
    assert plain.is_bounded
    assert types_of(signature_of(source, "ns::scale<int, 2, unsigned char>")) == [
        "int*",
        "unsigned char*",
        "int",
        "int",
    ]


def test_entries_that_are_not_extern_c() -> None:
    source = "namespace { __global__ void hidden(float* y) { *y = 1; } }\n__global__ void plain(int n) {}"
    assert types_of(signature_of(source, "hidden")) == ["float*"]
    assert types_of(signature_of(source, "plain")) == ["int"]


@pytest.mark.parametrize(
    ("attribute", "threads", "has_register_bound"),
    [
        ("", None, False),
        ("__launch_bounds__(128)", 128, False),
        ("__launch_bounds__(32 * 6, 2)", 192, False),
        ("__launch_bounds__(FUSER_MAX_THREADS)", PROBE_THREADS, False),
        ("__maxnreg__(40)", None, True),
    ],
)
def test_bounds(attribute: str, threads: int | None, has_register_bound: bool) -> None:
    signature = signature_of(f"__global__ void {attribute} k(float* y) {{}}", "k")
    assert (signature.max_threads, signature.has_register_bound) == (threads, has_register_bound)
    assert signature.is_bounded == (threads == PROBE_THREADS)


def test_no_parameters() -> None:
    assert declared("").parameters == ()
    assert declared("void").parameters == ()


def test_given_signature_decides_between_overloads() -> None:
    source = "__global__ void k(float* y) { *y = 1; }\n__global__ void k(int* y, int n) { *y = n; }"
    with pytest.raises(CompilationError):
        signature_of(source, "k")


def test_given_signature_is_checked_against_the_binary() -> None:
    source = 'using opaque = unsigned long long;\nextern "C" __global__ void k(opaque a, int n) {}'
    given = signature_of(source, "k", "float* y, const int n")
    assert types_of(given) == ["float*", "int"]
    assert [p.name for p in given.parameters] == ["y", "n"]
    with pytest.raises(CompilationError) as caught:
        signature_of(source, "k", "float y, int n")
    assert str(caught.value) == (
        "the signature of k says float (4 bytes), int (4 bytes); the compiled kernel has parameters of 8, 4 bytes"
    )


@pytest.mark.parametrize("parameters", ["void (*f)(int)", "int C::*m", "decltype(nullptr) p"])
def test_types_without_a_value(parameters: str) -> None:
    with pytest.raises(
        CompilationError, match=r"parameter 0 .*of k (is a pointer to a function|has a type that is not known)"
    ):
        declared(parameters, "struct C { int a; };")


def test_user_macros_do_not_disturb_the_question() -> None:
    source = "#define value 7\n#define type int\n#define T float\n"
    assert types_of(declared("T* y", source)) == ["float*"]


@pytest.mark.parametrize(
    ("declaration", "names"),
    [
        ("", ()),
        ("void", ()),
        ("float* y, const float* __restrict__ x, int n", ("y", "x", "n")),
        ("float, const int", ("", "")),
        ("unsigned n", ("n",)),
        ("unsigned long", ("",)),
        ("const T", ("",)),
        ("pair<int, float> p, T (&a)[3]", ("p", "")),
        ("int n = f(1, 2), double d[4]", ("n", "d")),
        ("/* a, b */ ns::T value // c\n", ("value",)),
        ("ns::T", ("",)),
        ("struct params p", ("p",)),
        ("struct params", ("",)),
        ("dim3 *p[]", ("p",)),
    ],
)
def test_parameter_names(declaration: str, names: tuple[str, ...]) -> None:
    assert parameter_names(declaration) == names


def test_kinds() -> None:
    pointer, scalar, struct = declared("int* p, int n, int2 s").parameters
    assert (pointer.kind, scalar.kind, struct.kind) == (RawKind.pointer, RawKind.scalar, RawKind.struct)
    assert (pointer.nbytes, scalar.nbytes, struct.nbytes) == (8, 4, 8)
    assert not pointer.is_const


NAMES_IN_TEXT = [
    ("// __global__ void k(int wrong);\n__global__ void k(float* y) {}", "y"),
    ('const char* text = "__global__ void k(int wrong)";\n__global__ void k(float* y) {}', "y"),
    ("__global__ void k(float* y);\n__global__ void k(float* y) {}", "y"),
    ("__global__ void k(float* a);\n__global__ void k(float* b) {}", ""),
    ("#define KERNEL __global__ void\nKERNEL k(float* y) {}", "y"),
    ("#define KERNEL __global__ void\nint before;\nKERNEL k(float* y) {}", ""),
    ('extern "C" __global__ __launch_bounds__(256)\nvoid k(\n    float* y\n) {}', "y"),
]


@pytest.mark.parametrize(("source", "name"), NAMES_IN_TEXT)
def test_names_come_from_the_text(source: str, name: str) -> None:
    assert [p.name for p in signature_of(source, "k").parameters] == [name]


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_100a", "sm_120a"])
def test_pointers_of_an_entry_on_every_architecture(arch: str) -> None:
    """PTX for compute capability 10.0 and later says how pointers of parameters are aligned: `.ptr .align 1`."""
    source = 'extern "C" __global__ void twice(float* y, const int* x, int n) {}'
    raw = RtcKernel(source, "twice", DeviceInfo.preset(arch)).compile()
    assert [p.nbytes for p in raw.parameters] == [8, 8, 4]
