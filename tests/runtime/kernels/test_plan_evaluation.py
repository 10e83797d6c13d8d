"""Launch plans as Python code: sizes, parameter values, facts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser.errors import InputRuntimeError, InputTypeError, InputValueError, InternalError
from fuser.ir.facts import (
    Aligned,
    DenseStride,
    Disjoint,
    ExtentDivisible,
    ExtentIs,
    Fact,
    IndexBound,
    LaunchBound,
    LoopBound,
    StrideDivisible,
    TensorDescriptor,
    UnitStride,
    ZeroStride,
    first_broken,
    holds,
)
from fuser.ir.integers.integers import Symbol, as_int, ceil_div, symbol
from fuser.ir.kernel.kernel import (
    Buffer,
    ExtentParameter,
    Parameter,
    ScalarParameter,
    SemaphoreParameter,
    TensorParameter,
    WorkspaceParameter,
)
from fuser.ir.kernel.launch_plan import Binding, ExtentOf, LaunchPlan, ScalarOf, ScalarStep, StrideOf, Workspace
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY
from fuser.runtime.array_view import alignment_of
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.plan_evaluation import PlanEvaluation, evaluation_of, facts_hold, scalar_as

n, m, s, k = symbol("n"), symbol("m"), symbol("s", None), symbol("k", None)


def tensor(name: str, position: int, dtype: DataType = DataType.Float, is_output: bool = False) -> TensorParameter:
    return TensorParameter(Buffer(name, dtype, GLOBAL_MEMORY, n, name), name, position, is_output)


def kernel_with(parameters: Sequence[Parameter], plan: LaunchPlan | None, facts: Sequence[Fact] = ()) -> CompiledKernel:
    return CompiledKernel(
        source="",
        entry="entry",
        arch="sm_90a",
        cubin=None,
        kernel_ir=None,
        parameters=tuple(parameters),
        plan=plan,
        facts=frozenset(facts),
        resources=None,
        max_block_size=0,
        register_limit=255,
        options=(),
        nvrtc_version=None,
        content_hash="",
    )


PLAN = LaunchPlan(
    tensor_arguments=("x", "y"),
    scalar_arguments=("alpha", "k"),
    bindings=(
        Binding(n, ExtentOf(0, 0)),
        Binding(m, ExtentOf(0, 1)),
        Binding(s, StrideOf(0, 0)),
        Binding(k, ScalarOf("k")),
    ),
    scalars=(),
    grid=(ceil_div(n, 4), as_int(1), m),
    block=(as_int(32), as_int(4), as_int(1)),
    shared_bytes=m * 4,
    workspaces=(Workspace("partial", DataType.Double, ceil_div(n, 4) * m), Workspace("count", DataType.Int32, m)),
    semaphores=m,
    output_shapes=((n, k),),
    output_strides=((k, as_int(1)),),
)
PARAMETERS: tuple[Parameter, ...] = (
    ExtentParameter(s),
    tensor("y", 1, DataType.Half, is_output=True),
    tensor("x", 0),
    WorkspaceParameter(Buffer("partial", DataType.Double, GLOBAL_MEMORY, n)),
    ScalarParameter("alpha", DataType.Double),
    SemaphoreParameter(Buffer("semaphores", DataType.Int32, GLOBAL_MEMORY, m)),
    WorkspaceParameter(Buffer("count", DataType.Int32, GLOBAL_MEMORY, m)),
    ExtentParameter(k),
)


def test_sizes_and_parameter_values() -> None:
    evaluation = PlanEvaluation(kernel_with(PARAMETERS, PLAN))
    values = evaluation.evaluate([(10, 6), (10, 3)], [(8, 1), (3, 1)], [4096, 8192], [2, 3])
    assert values.grid == (3, 1, 6)
    assert values.block == (32, 4, 1)
    assert values.shared_bytes == 24
    assert values.workspaces == (18, 6)
    assert values.semaphores == 6
    assert not values.is_empty
    arguments = evaluation.arguments(values, [4096, 8192], [100, 200], 300)
    assert arguments == [8, 8192, 4096, 100, 2.0, 300, 200, 3]
    assert type(arguments[4]) is float
    assert evaluation.dtypes == (DataType.Float, DataType.Half)


def test_arguments_of_another_rank_are_refused() -> None:
    evaluation = PlanEvaluation(kernel_with(PARAMETERS, replace(PLAN, ranks=(2, 2))))
    evaluation.evaluate([(10, 6), (10, 3)], [(8, 1), (3, 1)], [4096, 8192], [2, 3])
    for shapes, text in (
        ([(10,), (10, 3)], "it was compiled for x of rank 2, but got shape [10]"),
        ([(10, 6), (10, 3, 1)], "it was compiled for y of rank 2, but got shape [10, 3, 1]"),
    ):
        with pytest.raises(InputRuntimeError, match=re.escape(text)):
            evaluation.evaluate(shapes, [(1,) * len(n) for n in shapes], [4096, 8192], [2, 3])


def test_output_layouts_from_the_inputs_alone() -> None:
    evaluation = PlanEvaluation(kernel_with(PARAMETERS, PLAN))
    assert evaluation.output_layouts([(10, 6)], [(8, 1)], [2.0, 3]) == [((10, 3), (3, 1))]


def test_empty_launches_are_seen() -> None:
    evaluation = PlanEvaluation(kernel_with(PARAMETERS, PLAN))
    assert evaluation.evaluate([(10, 0), (10, 3)], [(8, 1), (3, 1)], [0, 0], [2, 3]).is_empty


def test_evaluations_are_made_once_and_go_with_their_kernel() -> None:
    import gc
    import weakref

    kernel = kernel_with(PARAMETERS, PLAN)
    assert evaluation_of(kernel) is evaluation_of(kernel)
    alive = weakref.ref(evaluation_of(kernel))
    del kernel
    gc.collect()
    assert alive() is None


def test_raw_kernels_have_no_plan() -> None:
    with pytest.raises(InternalError, match="kernel entry has no launch plan"):
        PlanEvaluation(kernel_with((), None))


def test_scalar_steps_run_on_the_host() -> None:
    plan = replace(
        PLAN,
        scalars=(
            ScalarStep("rows", DataType.Int, "extent", (0, 0)),
            ScalarStep("more", DataType.Int, "add", ("rows", "k")),
            ScalarStep("wide", DataType.Double, "cast", ("more",)),
            ScalarStep("root", DataType.Double, "sqrt", ("wide",)),
            ScalarStep("half", DataType.Float, "mul", ("root", 0.5)),
            ScalarStep("whole", DataType.Int, "cast", ("half",)),
            ScalarStep("many", DataType.Int32, "mul", (2**30, 6)),
        ),
    )
    evaluation = PlanEvaluation(kernel_with((), plan))
    values = evaluation.evaluate([(22, 6), (22, 3)], [(8, 1), (3, 1)], [0, 0], [2.0, 3])
    assert dict(values.scalars) == {
        "alpha": 2.0,
        "k": 3,
        "rows": 22,
        "more": 25,
        "wide": 25.0,
        "root": 5.0,
        "half": 2.5,
        "whole": 2,
        "many": -(2**31),
    }


def test_scalars_keep_their_kind() -> None:
    assert scalar_as(3, DataType.Float, "a") == 3.0
    assert scalar_as(True, DataType.Int, "a") == 1
    assert scalar_as(2.0, DataType.ComplexFloat, "a") == 2 + 0j
    assert scalar_as(5, DataType.Bool, "a") is True
    with pytest.raises(InputTypeError, match=r"Scalar value 1\.5 of a is not compatible .* int64_t\."):
        scalar_as(1.5, DataType.Int, "a")
    with pytest.raises(InputTypeError, match="data type: float"):
        scalar_as(1j, DataType.Float, "a")


@pytest.mark.parametrize("dtype", [DataType.Int32, DataType.Int, DataType.UInt64, DataType.Index])
def test_integers_out_of_range_are_told(dtype: DataType) -> None:
    low, high = dtype.integer_range
    assert scalar_as(low, dtype, "a") == low
    assert scalar_as(high - 1, dtype, "a") == high - 1
    for number in (low - 1, high, 2**70):
        with pytest.raises(InputValueError, match="for a is out of the range of"):
            scalar_as(number, dtype, "a")


# --- facts ------------------------------------------------------------------------------------------------------------

SIZES = st.lists(st.integers(0, 6), min_size=2, max_size=2).map(tuple)
STRIDES = st.lists(st.sampled_from([0, 1, 2, 3, 4, 6, 8, -1]), min_size=2, max_size=2).map(tuple)
ADDRESS = st.sampled_from([4096, 4096 + 16, 4096 + 4, 4096 + 40, 8192, 0])
TENSOR = st.sampled_from(["x", "y"])
DIM = st.integers(0, 1)


@st.composite
def facts_about(draw: st.DrawFn) -> Fact:
    name, dim = draw(TENSOR), draw(DIM)
    return draw(
        st.sampled_from(
            [
                ExtentIs(name, dim, draw(st.integers(0, 1))),
                ExtentDivisible(name, dim, draw(st.integers(1, 4))),
                UnitStride(name, dim),
                ZeroStride(name, dim),
                DenseStride(name, dim, 1 - dim),
                StrideDivisible(name, dim, draw(st.sampled_from([4, 8, 16]))),
                Aligned(name, draw(st.sampled_from([4, 8, 16, 256]))),
                IndexBound(name, draw(st.integers(0, 20))),
                LoopBound(draw(st.integers(0, 20)), (n * 2, n + m)),
                LaunchBound(draw(st.integers(0, 20)), (n, n * m)),
                Disjoint(name, "y" if name == "x" else "x"),
            ]
        )
    )


def descriptors(sizes: Any, strides: Any, addresses: Any) -> dict[str, TensorDescriptor]:
    dtypes = (DataType.Float, DataType.Half)
    return {
        name: TensorDescriptor(dtypes[i], sizes[i], strides[i], alignment_of(addresses[i]), addresses[i])
        for i, name in enumerate(("x", "y"))
    }


@settings(deadline=None, max_examples=500)
@given(
    fact=facts_about(),
    sizes=st.tuples(SIZES, SIZES),
    strides=st.tuples(STRIDES, STRIDES),
    addresses=st.tuples(ADDRESS, ADDRESS),
)
def test_generated_checks_agree_with_the_definition(fact: Fact, sizes: Any, strides: Any, addresses: Any) -> None:
    kernel = kernel_with(PARAMETERS, PLAN, [fact])
    evaluation = PlanEvaluation(kernel)
    values = {n: sizes[0][0], m: sizes[0][1]}
    described = descriptors(sizes, strides, addresses)
    expected = holds(fact, described, lambda e: e.evaluate(values))
    assert facts_hold(kernel, described, lambda e: e.evaluate(values)) == expected
    if expected:
        evaluation.evaluate(sizes, strides, addresses, [2, 3])
    else:
        with pytest.raises(InputRuntimeError, match="kernel entry cannot run on these arguments: it was compiled for "):
            evaluation.evaluate(sizes, strides, addresses, [2, 3])


@settings(deadline=None, max_examples=200)
@given(
    inner=st.sampled_from([UnitStride("x", 1), ZeroStride("x", 1), StrideDivisible("x", 1, 4)]),
    sizes=st.tuples(SIZES, SIZES),
    strides=st.tuples(STRIDES, STRIDES),
)
def test_generated_checks_take_strides_as_facts_tell_them(inner: Fact, sizes: Any, strides: Any) -> None:
    facts = [DenseStride("x", 0, 1), inner]
    evaluation = PlanEvaluation(kernel_with(PARAMETERS, PLAN, facts))
    broken = first_broken(facts, descriptors(sizes, strides, (4096, 8192)), lambda e: e.evaluate({}))
    if broken is None:
        evaluation.evaluate(sizes, strides, (4096, 8192), [2, 3])
    else:
        with pytest.raises(InputRuntimeError, match="kernel entry cannot run on these arguments: it was compiled for "):
            evaluation.evaluate(sizes, strides, (4096, 8192), [2, 3])


def test_message_names_tensor_dimension_and_what_came() -> None:
    evaluation = PlanEvaluation(
        kernel_with(PARAMETERS, PLAN, [StrideDivisible("x", 0, 16), ExtentDivisible("x", 1, 2)])
    )
    with pytest.raises(InputRuntimeError) as caught:
        evaluation.evaluate([(10, 6), (10, 3)], [(7, 1), (3, 1)], [4096, 8192], [2, 3])
    assert str(caught.value) == (
        "kernel entry cannot run on these arguments: it was compiled for a stride of dimension 0 of x that is a multiple "
        "of 16 bytes, but got shape [10, 6] with strides [7, 1]"
    )


def test_symbols_without_binding_are_a_bug_of_the_plan() -> None:
    plan = replace(PLAN, bindings=PLAN.bindings[1:])
    with pytest.raises(ValueError, match="no parameter for the symbols n"):
        PlanEvaluation(kernel_with(PARAMETERS, plan))


def test_symbols_may_be_divisible() -> None:
    wide = symbol("wide", multiple=8)
    assert isinstance(wide, Symbol)
    plan = replace(
        PLAN, bindings=(*PLAN.bindings, Binding(wide, ExtentOf(0, 1))), grid=(wide // 8, as_int(1), as_int(1))
    )
    evaluation = PlanEvaluation(kernel_with((), plan))
    assert evaluation.evaluate([(1, 24), (1, 3)], [(24, 1), (3, 1)], [0, 0], [2, 3]).grid == (3, 1, 1)
