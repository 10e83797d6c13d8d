"""CUDA text of hand-built kernels, each a single idea, and the rules that hold for all text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.codegen.generate import generate_cuda
from fuser.codegen.preamble import BOUNDS
from fuser.codegen.statements import unparenthesized
from fuser.errors import InternalError
from fuser.ir.integers.integers import const, less, symbol
from fuser.ir.kernel.kernel import (
    Allocate,
    Cast,
    If,
    IndexValue,
    Kernel,
    Let,
    Literal,
    Load,
    Reduce,
    Scan,
    Shuffle,
    ShuffleKind,
    Stmt,
    Store,
    Value,
    VectorMove,
    walk,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp, ParallelType
from tests.codegen.golden_corpus import (
    BOOL,
    DEVICE_LEVEL,
    FLOAT,
    GOLDEN_KERNELS,
    HALF,
    TID,
    ZERO,
    at,
    call,
    corpus_kernels,
    kernel,
    literals,
    loop,
    registers,
    store,
    tensor,
)
from tests.conftest import Golden
from tests.judging.python_calls import python_calls


@pytest.mark.parametrize("make", GOLDEN_KERNELS, ids=lambda make: make.__name__)
def test_text(make: Callable[[], Kernel], golden: Golden) -> None:
    text = generate_cuda(make()).text
    assert len(text.splitlines()) < 80
    golden.check(text, ".cu")


def test_every_text_starts_with_the_bounds_and_needs_no_header() -> None:
    for k in corpus_kernels():
        source = generate_cuda(k)
        assert source.text.startswith(BOUNDS)
        assert "#include" not in source.text
        assert source.entry == k.name
        assert f'extern "C" __global__ void FUSER_BOUNDS {k.name}(' in source.text


def test_equal_kernels_give_equal_text() -> None:
    first = [generate_cuda(make()).text for make in GOLDEN_KERNELS]
    assert first == [generate_cuda(make()).text for make in GOLDEN_KERNELS]


def _body_of(value: Value, index_bits: int = 32) -> str:
    """The right side of a store of `value` into a tensor."""
    out = tensor("out", value.dtype)
    text = generate_cuda(kernel("k", (), (out,), Store(out, ZERO, value), index_bits=index_bits)).text
    (line,) = [line for line in text.splitlines() if line.startswith("  out[0] = ")]
    return line.removeprefix("  out[0] = ").removesuffix(";")


def test_literal_operands_are_converted_when_the_text_is_made() -> None:
    # 0.1 is rounded to Half first: the value of the literal is a Half.
    assert _body_of(call("add", Literal(1, DataType.Int), Literal(0.1, HALF))) == "1.0f + 0.099975586f"
    assert _body_of(call("add", Literal(0.1, FLOAT), Literal(True, BOOL), compute=DataType.Double)) == (
        "0.10000000149011612 + 1.0"
    )
    # C leaves the conversion of nan to an integer open: it stays in the text.
    assert _body_of(call("neg", Literal(float("nan"), FLOAT), compute=DataType.Int)) == (
        "fuser_wrap_neg((long long)(__int_as_float(0x7fc00000)))"
    )


def test_equal_numbers_of_different_kinds_keep_their_text() -> None:
    assert _body_of(Literal(0.0, FLOAT)) == "0.0f"
    assert _body_of(Literal(-0.0, FLOAT)) == "-0.0f"
    assert _body_of(Literal(1, DataType.Int)) == "1ll"
    assert _body_of(Literal(True, BOOL)) == "true"
    assert _body_of(Literal(-(2**63), DataType.Int)) == "-9223372036854775807ll - 1"
    assert _body_of(Literal(2**64 - 1, DataType.UInt64)) == "18446744073709551615ull"


def test_index_values_change_width_explicitly() -> None:
    assert _body_of(IndexValue(TID * 4 + 1, DataType.Int32)) == "4*tid_x + 1"
    assert _body_of(IndexValue(TID * 4 + 1, DataType.Index)) == "(long long)(4*tid_x + 1)"
    assert _body_of(IndexValue(TID * 4 + 1, DataType.Int32), index_bits=64) == "(int)(4*tid_x + 1)"
    assert _body_of(IndexValue(TID * 4 + 1, DataType.Int), index_bits=64) == "4*tid_x + 1"


def test_result_of_an_op_is_converted_once() -> None:
    equal = call("eq", IndexValue(TID, DataType.Int32), Literal(0.0, FLOAT), dtype=FLOAT)
    assert _body_of(equal) == "(float)(((float)((tid_x)) == 0.0f))"
    chosen = call("where", Literal(True, BOOL), Literal(1.0, FLOAT), Literal(2, DataType.Int))
    assert _body_of(chosen) == "true ? 1.0f : 2.0f"


def test_numbers_of_elements_need_no_scale_as_divisors() -> None:
    for op in ("div", "truediv"):
        divided = [call(op, Literal(2.0, FLOAT), Cast(IndexValue(n, DataType.Int), FLOAT)) for n in (TID + 1, TID)]
        assert _body_of(divided[0]) == "fuser_divide_by_count(2.0f, (float)((long long)(tid_x + 1)))"
        assert _body_of(divided[1]) == "fuser_divide(2.0f, (float)((long long)(tid_x)))"
    wide = call("div", Literal(2.0, DataType.Double), IndexValue(TID + 1, DataType.Int), compute=DataType.Double)
    assert "fuser_divide" not in _body_of(wide)


def test_only_used_device_functions_are_in_the_text() -> None:
    out = tensor("out", FLOAT)
    text = generate_cuda(kernel("k", (), (out,), store(out, call("isnan", at(out))))).text
    assert text.count("__device__") == 1
    assert "fuser_isnan(T x)" in text


def test_inputs_are_const_and_outputs_are_not() -> None:
    a, b = tensor("a", FLOAT), tensor("b", FLOAT)
    text = generate_cuda(kernel("k", (a,), (b,), store(b, at(a)))).text
    assert "    const float* a,\n    float* b,\n" in text
    assert "__restrict__" not in text
    assert "__ldg" not in text


@pytest.mark.parametrize(("iterations", "test"), [(8, "32*i + j < 200"), (9, "32*i < 200 - j")])
@pytest.mark.parametrize("unroll", [False, True])
def test_long_unrolled_loops_test_their_counter_alone(iterations: int, test: str, unroll: bool) -> None:
    """What is left is one number for all iterations, where sums would be one each."""
    out, i, j = tensor("out", FLOAT), symbol("i", 0, iterations - 1), symbol("j", 0, 31)
    body = If(less(32 * i + j, const(200)), (store(out, Literal(1.0, FLOAT), 32 * i + j),))
    text = generate_cuda(kernel("k", (), (out,), loop(j, 32, loop(i, iterations, body, unroll=unroll)))).text
    assert f"if ({test if unroll else '32*i + j < 200'}) {{" in text


def test_sibling_scopes_may_define_a_symbol_again() -> None:
    out, j = tensor("out", FLOAT), symbol("j", 0, 7)
    again = Literal(1.0, FLOAT)
    text = generate_cuda(
        kernel("k", (), (out,), loop(j, 8, store(out, again, j)), loop(j, 4, store(out, again, j)))
    ).text
    assert text.count("for (index_t j = 0;") == 2


def test_registers_of_vector_moves_are_aligned_to_the_widest() -> None:
    a, r = tensor("a", HALF), registers("r", HALF, 8)
    body: list[Stmt] = [Allocate(r), VectorMove(r, ZERO, a, ZERO, 2), VectorMove(r, const(4), a, const(4), 4)]
    text = generate_cuda(kernel("k", (a,), (), *body)).text
    assert "alignas(8) fuser_half r[8];" in text


def test_moves_of_one_element_are_plain() -> None:
    a, r = tensor("a", DataType.Double), registers("r", DataType.Double)
    text = generate_cuda(kernel("k", (a,), (), Allocate(r), VectorMove(r, ZERO, a, TID, 1, DEVICE_LEVEL))).text
    assert "  r = __ldcg(&a[tid_x]);" in text


def test_a_collective_that_was_not_expanded_is_an_internal_error() -> None:
    total = registers("total", FLOAT)
    collective = Reduce(
        (total,), "add", (Literal(0.0, FLOAT),), (ParallelType.block_x,), (), False, ZERO, const(1), "r0"
    )
    with pytest.raises(InternalError, match=r"^the collective r0 reached code generation") as caught:
        generate_cuda(kernel("k", (), (), Allocate(total), collective))
    assert caught.value.pass_name == "generate_cuda"


def test_shuffles_from_lanes_before() -> None:
    r = registers("r", FLOAT)
    shuffle = Shuffle(r, ZERO, Load(r, ZERO), ShuffleKind.up, const(4), 16)
    text = generate_cuda(kernel("k", (), (), Allocate(r), store(r, Literal(1.0, FLOAT)), shuffle)).text
    assert "  r = __shfl_up_sync(0xffffffffu, r, 4, 16);" in text


def test_a_scan_that_was_not_expanded_is_an_internal_error() -> None:
    values, carry = registers("values", FLOAT, 4), registers("carry", FLOAT)
    scan = Scan(values, carry, "add", Literal(0.0, FLOAT), (ParallelType.block_x,), (), (), ((4, 1),), "s0")
    with pytest.raises(InternalError, match=r"^the collective s0 reached code generation"):
        generate_cuda(kernel("k", (), (), Allocate(values), Allocate(carry), scan))


def test_an_undefined_symbol_is_an_internal_error() -> None:
    out = tensor("out", FLOAT)
    with pytest.raises(InternalError, match="the index symbol k is used but defined nowhere before"):
        generate_cuda(kernel("k", (), (out,), store(out, Literal(0.0, FLOAT), symbol("k", 0, 9))))


def test_an_undefined_buffer_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="the buffer r is used but neither a parameter nor allocated before"):
        generate_cuda(kernel("k", (), (), store(registers("r", FLOAT), Literal(0.0, FLOAT))))


def test_comments_cannot_change_the_text() -> None:
    k = kernel("k", (), ())
    k = Kernel(k.name, k.parameters, k.body, k.plan, title="two\nlines \\")
    assert "// two\n// lines \\.\nextern" in generate_cuda(k).text


def test_work_per_statement() -> None:
    """In calls of Python functions: 86 for these two, some ten microseconds each."""
    a, b, x = tensor("a", HALF), tensor("b", HALF), registers("x", FLOAT)

    def calls(pairs: int) -> int:
        body: list[Stmt] = [Allocate(x)]
        for n in range(pairs):
            i = symbol(f"i{n}", 0, 2**20)
            value = call("mul", at(a, i, CacheOp.streaming), at(a, i // 8), dtype=HALF)
            body += [Let(i, TID * 8 + n), store(b, value, i)]
        k = kernel("k", (a,), (b,), *body)
        assert len(list(walk(k.body))) == 2 * pairs + 1
        return python_calls(lambda: generate_cuda(k))

    assert calls(60) - calls(30) <= 30 * 120
    assert calls(30) <= 30 * 120


def test_literals_of_all_types_have_text() -> None:
    for dtype in DataType:
        if dtype.is_supported:
            assert "nan" not in generate_cuda(literals(dtype)).text


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("(a + b)", "a + b"),
        ("((a) + (b))", "(a) + (b)"),
        ("(a) + (b)", "(a) + (b)"),
        ("((a))", "(a)"),
        ("f(a)", "f(a)"),
        ("(a)(b)", "(a)(b)"),
        ("(f(a)[(b)])", "f(a)[(b)]"),
        ("a", "a"),
        ("", ""),
    ],
)
def test_one_pair_around_all_is_taken_off(text: str, bare: str) -> None:
    assert unparenthesized(text) == bare
