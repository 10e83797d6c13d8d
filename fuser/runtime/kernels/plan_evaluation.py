"""From a launch plan and concrete arguments to concrete sizes and parameter values.

A plan is data (`ir/kernel/launch_plan.py`). On first use it becomes Python code: one function reads the bound symbols off the
arguments, one computes every expression of the plan, one checks the facts. Nothing symbolic is walked per launch.

    evaluation = evaluation_of(kernel)
    values = evaluation.evaluate(sizes, strides, addresses, scalars)     facts checked
    arguments = evaluation.arguments(values, addresses, workspaces, semaphores)
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, assert_never

from fuser.errors import InputRuntimeError, InputTypeError, InputValueError, InternalError
from fuser.generated_code import code_of
from fuser.ir.facts import (
    Aligned,
    DenseStride,
    Disjoint,
    ExtentDivisible,
    ExtentIs,
    ExtentWithin,
    Fact,
    IndexBound,
    LaunchBound,
    LoopBound,
    StrideDivisible,
    TensorDescriptor,
    UnitStride,
    ZeroStride,
    first_broken,
    stride_facts,
    told_stride,
)
from fuser.ir.integers.integers import Int, compile_function
from fuser.ir.kernel.kernel import (
    DivisorParameter,
    ExtentParameter,
    ScalarParameter,
    SemaphoreParameter,
    TensorParameter,
    WorkspaceParameter,
)
from fuser.ir.kernel.launch_plan import ExtentOf, LaunchPlan, ScalarOf, ScalarStep, StrideOf
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.array_view import alignment_of
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.scalars import Scalar

Shapes = Sequence[Sequence[int]]
Triple = tuple[int, int, int]


class LaunchValues(NamedTuple):
    """A plan with its symbols filled in. Workspaces in elements, shared memory in bytes.

    `expressions` maps each integer expression of plan and parameters to its value, `scalars` each scalar's name.
    """

    grid: Triple
    block: Triple
    shared_bytes: int
    workspaces: tuple[int, ...]
    semaphores: int | None
    expressions: Mapping[Int, int]
    scalars: Mapping[str, Scalar]

    @property
    def is_empty(self) -> bool:
        """True if no block or thread would run: such a launch is skipped."""
        return 0 in self.grid or 0 in self.block


class ParameterValues(NamedTuple):
    """Values of kernel parameters: `template` has one per parameter, the rest says which of them come from elsewhere.

    pointers    (position, tensor argument)
    workspaces  positions of each workspace of the plan
    semaphores  positions
    scalars     (position, name, dtype) of user scalars
    """

    template: tuple[Scalar, ...]
    pointers: tuple[tuple[int, int], ...]
    workspaces: tuple[tuple[int, ...], ...]
    semaphores: tuple[int, ...]
    scalars: tuple[tuple[int, str, DataType], ...]


class _Places(NamedTuple):
    """Which parameters of a kernel get what, for all launches; as ParameterValues, and

    extents    (position, expression)
    numbers    (position, name, dtype) of all scalars, those that the host computes among them
    """

    pointers: tuple[tuple[int, int], ...]
    workspaces: tuple[tuple[int, ...], ...]
    semaphores: tuple[int, ...]
    scalars: tuple[tuple[int, str, DataType], ...]
    extents: tuple[tuple[int, Int], ...]
    numbers: tuple[tuple[int, str, DataType], ...]


def _places_of(parameters: Sequence[object], plan: LaunchPlan) -> _Places:
    pointers: list[tuple[int, int]] = []
    workspaces: list[tuple[int, ...]] = []
    semaphores: list[int] = []
    extents: list[tuple[int, Int]] = []
    numbers: list[tuple[int, str, DataType]] = []
    for position, parameter in enumerate(parameters):
        match parameter:
            case TensorParameter(argument=argument):
                pointers.append((position, argument))
            case WorkspaceParameter():
                # They are declared in the order of the plan.
                workspaces.append((position,))
            case SemaphoreParameter():
                semaphores.append(position)
            case ExtentParameter(symbol):
                extents.append((position, symbol))
            case DivisorParameter(divisor):
                extents.append((position, divisor))
            case ScalarParameter(name, dtype):
                numbers.append((position, name, dtype))
            case _:
                raise InternalError(f"a planned kernel has the parameter {parameter!r}", pass_name="plan_evaluation")
    scalars = tuple(n for n in numbers if n[1] in plan.scalar_arguments)
    return _Places(tuple(pointers), tuple(workspaces), tuple(semaphores), scalars, tuple(extents), tuple(numbers))


class PlanEvaluation:
    """A kernel's launch plan as Python code.

    `dtypes` are the element types of its tensor arguments, None where the kernel reads extents only.
    """

    def __init__(self, kernel: CompiledKernel) -> None:
        plan = kernel.plan
        if plan is None:
            raise InternalError(f"kernel {kernel.entry} has no launch plan", pass_name="plan_evaluation")
        # Not the kernel itself: it is the weak key under which evaluations are kept.
        self.entry = kernel.entry
        self.parameters = kernel.parameters
        self.plan: LaunchPlan = plan
        self.dtypes = argument_dtypes(kernel)
        # Of scalars whose type is declared; a number of another name has the type of its Python kind.
        self._scalar_dtypes = {p.name: p.dtype for p in kernel.parameters if isinstance(p, ScalarParameter)}
        self._scalar_dtypes.update((s.name, s.dtype) for s in plan.scalars)
        self._facts: tuple[Fact, ...] = tuple(sorted(kernel.facts, key=repr))
        self._places = _places_of(kernel.parameters, plan)
        self._read = _compile_reader(plan)
        self._outputs = self._expressions()
        self._compute = compile_function(self._outputs, [b.symbol for b in plan.bindings])
        self.has_disjoint = any(isinstance(f, Disjoint) for f in self._facts)
        # By the ranks of the arguments.
        self._checks: dict[tuple[int, ...], Callable[..., bool]] = {}

    def _expressions(self) -> list[Int]:
        """Every expression to compute, each once; the plan's launch sizes first."""
        plan = self.plan
        found: dict[Int, None] = dict.fromkeys((*plan.grid, *plan.block, plan.shared_bytes))
        found.update(dict.fromkeys(w.count for w in plan.workspaces))
        if plan.semaphores is not None:
            found[plan.semaphores] = None
        for parameter in self.parameters:
            if isinstance(parameter, ExtentParameter):
                found[parameter.symbol] = None
            elif isinstance(parameter, DivisorParameter):
                found[parameter.divisor] = None
        for fact in self._facts:
            if isinstance(fact, LoopBound):
                found.update(dict.fromkeys(fact.products))
        for row in (*plan.output_shapes, *plan.output_strides):
            found.update(dict.fromkeys(row))
        return list(found)

    def evaluate(
        self, sizes: Shapes, strides: Shapes, addresses: Sequence[int], scalars: Sequence[Scalar]
    ) -> LaunchValues:
        """Launch sizes for the arguments.

        One entry per tensor argument (strides in elements) and per user scalar. Raises InputRuntimeError naming the
        tensor and what the kernel was compiled for, if its rank is another or a fact does not hold.
        """
        plan = self.plan
        for name, rank, shape in zip(plan.tensor_arguments, plan.ranks, sizes, strict=False):
            if len(shape) != rank:
                raise InputRuntimeError(
                    f"kernel {self.entry} cannot run on these arguments: it was compiled for {name} of rank {rank}, but got "
                    f"shape {list(shape)}"
                )
        named = self._scalars(sizes, scalars)
        results: tuple[Any, ...] = self._compute(*self._read(sizes, strides, named))
        values: dict[Int, int] = dict(zip(self._outputs, results, strict=True))
        if self._facts and not self.check(sizes, strides, addresses, values):
            self._raise_broken(sizes, strides, addresses, values)
        grid, block = plan.grid, plan.block
        return LaunchValues(
            (values[grid[0]], values[grid[1]], values[grid[2]]),
            (values[block[0]], values[block[1]], values[block[2]]),
            values[plan.shared_bytes],
            tuple(values[w.count] for w in plan.workspaces),
            None if plan.semaphores is None else values[plan.semaphores],
            values,
            named,
        )

    def output_layouts(
        self, sizes: Shapes, strides: Shapes, scalars: Sequence[Scalar]
    ) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """(shape, strides) of every output, from the inputs alone: entries of outputs may be left out."""
        named = self._scalars(sizes, scalars)
        values = dict(zip(self._outputs, self._compute(*self._read(sizes, strides, named)), strict=True))
        rows = zip(self.plan.output_shapes, self.plan.output_strides, strict=True)
        return [(tuple(values[e] for e in shape), tuple(values[e] for e in steps)) for shape, steps in rows]

    # --- scalars ------------------------------------------------------------------------------------------------------

    def _scalars(self, sizes: Shapes, scalars: Sequence[Scalar]) -> dict[str, Scalar]:
        named: dict[str, Scalar] = dict(zip(self.plan.scalar_arguments, scalars, strict=True))
        for step in self.plan.scalars:
            named[step.name] = _run_step(step, sizes, named, self._scalar_dtypes)
        return named

    # --- facts --------------------------------------------------------------------------------------------------------

    def check(self, sizes: Shapes, strides: Shapes, addresses: Sequence[int], values: Any) -> bool:
        """Whether every fact holds. `values[expression]` is that of an expression of the plan."""
        ranks = tuple(map(len, sizes))
        found = self._checks.get(ranks)
        if found is None:
            found = self._checks[ranks] = _compile_check(self._facts, self.plan, ranks, self.dtypes)
        return found(sizes, strides, addresses, values)

    def _raise_broken(
        self, sizes: Shapes, strides: Shapes, addresses: Sequence[int], values: Mapping[Int, int]
    ) -> None:
        tensors = {
            name: TensorDescriptor(
                self.dtypes[i] or DataType.Float,
                tuple(sizes[i]),
                tuple(strides[i]),
                alignment_of(addresses[i]),
                addresses[i],
            )
            for i, name in enumerate(self.plan.tensor_arguments)
        }
        broken = first_broken(self._facts, tensors, lambda e: values[e])
        if broken is None:
            raise InternalError(f"facts of {self.entry} were found broken but all hold", pass_name="plan_evaluation")
        raise InputRuntimeError(
            f"kernel {self.entry} cannot run on these arguments: it was compiled for {_describe(broken)}, "
            f"but got {_describe_actual(broken, tensors)}"
        )

    # --- parameter values ---------------------------------------------------------------------------------------------

    def arguments(
        self, values: LaunchValues, addresses: Sequence[int], workspaces: Sequence[int], semaphores: int
    ) -> list[Scalar]:
        """One value per kernel parameter: addresses for pointers, numbers for extents and scalars."""
        parameters = self.parameter_values(values)
        result = list(parameters.template)
        for position, argument in parameters.pointers:
            result[position] = addresses[argument]
        for positions, address in zip(parameters.workspaces, workspaces, strict=True):
            for position in positions:
                result[position] = address
        for position in parameters.semaphores:
            result[position] = semaphores
        for position, name, dtype in parameters.scalars:
            result[position] = scalar_as(values.scalars[name], dtype, name)
        return result

    def parameter_values(self, values: LaunchValues) -> ParameterValues:
        """What the kernel's parameters get. Numbers that follow from sizes are in the template."""
        places = self._places
        template: list[Scalar] = [0] * len(self.parameters)
        for position, expression in places.extents:
            template[position] = values.expressions[expression]
        for position, name, dtype in places.numbers:
            template[position] = scalar_as(values.scalars[name], dtype, name)
        return ParameterValues(tuple(template), places.pointers, places.workspaces, places.semaphores, places.scalars)

    @property
    def fixing_scalars(self) -> frozenset[str]:
        """User scalars that sizes or host arithmetic depend on; the others only pass through to the kernel."""
        used = {b.source.name for b in self.plan.bindings if isinstance(b.source, ScalarOf)}
        used.update(o for step in self.plan.scalars for o in step.operands if isinstance(o, str))
        return frozenset(used.intersection(self.plan.scalar_arguments))

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What the kernel assumes, in a fixed order."""
        return self._facts


_evaluations: weakref.WeakKeyDictionary[CompiledKernel, PlanEvaluation] = weakref.WeakKeyDictionary()


def evaluation_of(kernel: CompiledKernel) -> PlanEvaluation:
    """The evaluation of a kernel's plan, made once. Two threads may both make it; either will do."""
    found = _evaluations.get(kernel)
    if found is None:
        found = _evaluations[kernel] = PlanEvaluation(kernel)
    return found


class _Values:
    """Values of expressions by subscript, each computed when it is asked for."""

    __slots__ = ("_evaluate",)

    def __init__(self, evaluate: Callable[[Int], int]) -> None:
        self._evaluate = evaluate

    def __getitem__(self, expression: Int) -> int:
        return self._evaluate(expression)


def facts_hold(kernel: CompiledKernel, tensors: Mapping[str, TensorDescriptor], evaluate: Callable[[Int], int]) -> bool:
    """Whether a kernel's facts hold for inputs: what `first_broken` says, by the code that checks them at a launch.

    tensors    every argument that facts speak of
    evaluate   the value of a launch-plan expression
    """
    evaluation = evaluation_of(kernel)
    found = [tensors.get(name) for name in evaluation.plan.tensor_arguments]
    # An alignment is as good as an address, unless it matters what shares memory.
    if evaluation.has_disjoint or any(
        t is not None and t.dtype is not d for t, d in zip(found, evaluation.dtypes, strict=True)
    ):
        return first_broken(kernel.facts, tensors, evaluate) is None
    sizes = [() if t is None else t.sizes for t in found]
    strides = [() if t is None else t.strides for t in found]
    alignments = [0 if t is None else t.alignment for t in found]
    return evaluation.check(sizes, strides, alignments, _Values(evaluate))


def argument_dtypes(kernel: CompiledKernel) -> tuple[DataType | None, ...]:
    """Element type of each tensor argument of a planned kernel; None where neither the plan nor a pointer tells it."""
    plan = kernel.plan
    if plan is not None and plan.dtypes:
        return plan.dtypes
    found: list[DataType | None] = [None] * (0 if plan is None else len(plan.tensor_arguments))
    for parameter in kernel.parameters:
        if isinstance(parameter, TensorParameter):
            found[parameter.argument] = parameter.buffer.dtype
    return tuple(found)


def scalar_as(value: Scalar, dtype: DataType, name: str) -> Scalar:
    """A number as a kernel parameter of `dtype` takes it: a float beyond the finite ones of its type is infinite, as in a cast.

    Raises InputTypeError where that would lose its kind, InputValueError for an integer that the type does not hold.
    """
    try:
        number = _as_kind(value, dtype, name)
    except OverflowError:
        raise _out_of_range(value, dtype, name) from None
    if dtype.is_integral:
        low, high = dtype.integer_range
        if not low <= int(number.real) < high:
            raise _out_of_range(value, dtype, name)
    return number


def _out_of_range(value: Scalar, dtype: DataType, name: str) -> InputValueError:
    bits = int(value.real).bit_length()
    what = str(value) if bits <= 64 else f"An integer of {bits} bits"
    return InputValueError(f"{what} for {name} is out of the range of {dtype.c_name}.")


# The least numbers that are rounded to infinity: half a unit above the largest finite one.
_INFINITE: Final = {
    DataType.Half: 65520.0,
    DataType.BFloat16: float.fromhex("0x1.ffp+127"),
    DataType.Float: float.fromhex("0x1.ffffffp+127"),
    DataType.ComplexFloat: float.fromhex("0x1.ffffffp+127"),
}


def _as_float(value: float, dtype: DataType) -> float:
    least = _INFINITE.get(dtype)
    return value if least is None or not abs(value) >= least else math.copysign(math.inf, value)


def _as_kind(value: Scalar, dtype: DataType, name: str) -> Scalar:
    if dtype is DataType.Bool:
        if isinstance(value, (bool, int)):
            return bool(value)
    elif dtype.is_integral:
        if isinstance(value, (bool, int)):
            return int(value)
    elif dtype.is_floating:
        if isinstance(value, (bool, int, float)):
            return _as_float(float(value), dtype)
    else:
        number = complex(value)
        return complex(_as_float(number.real, dtype), _as_float(number.imag, dtype))
    raise InputTypeError(
        f"Scalar value {value} of {name} is not compatible with the expected data type: {dtype.c_name}."
    )


def _run_step(step: ScalarStep, sizes: Shapes, named: Mapping[str, Scalar], dtypes: Mapping[str, DataType]) -> Scalar:
    if step.op == "extent":
        argument, dim = step.operands
        if not isinstance(argument, int) or not isinstance(dim, int):
            raise InternalError(f"extent step {step.name} has operands {step.operands}", pass_name="plan_evaluation")
        return sizes[argument][dim]
    from fuser.ir.fusion.scalar_evaluation import evaluate_op
    from fuser.ir.ops.dtypes import scalar_type

    operands = [named[o] if isinstance(o, str) else o for o in step.operands]
    known = [dtypes.get(o) if isinstance(o, str) else None for o in step.operands]
    kinds = [found or scalar_type(value) for found, value in zip(known, operands, strict=True)]
    return evaluate_op(step.op, operands, kinds, step.dtype)


# --- generated code ---------------------------------------------------------------------------------------------------


def _build(name: str, lines: Sequence[str], scope: dict[str, Any]) -> Callable[..., Any]:
    space: dict[str, Any] = {"__builtins__": {}, **scope}
    exec(code_of("\n".join(lines), f"<launch plan: {name}>"), space)
    return space[name]


def _compile_reader(plan: LaunchPlan) -> Callable[..., tuple[int, ...]]:
    """`read(sizes, strides, scalars)`: the value of every bound symbol, in the order of the bindings."""
    values: list[str] = []
    for binding in plan.bindings:
        match binding.source:
            case ExtentOf(argument, dim):
                values.append(f"sizes[{argument}][{dim}]")
            case StrideOf(argument, dim):
                values.append(f"strides[{argument}][{dim}]")
            case ScalarOf(name):
                values.append(f"int(scalars[{name!r}])")
            case _:
                assert_never(binding.source)
    body = "".join(f"{value}, " for value in values)
    return _build("read", ["def read(sizes, strides, scalars):", f"    return ({body})"], {"int": int})


def _compile_check(
    facts: Sequence[Fact], plan: LaunchPlan, ranks: Sequence[int], dtypes: Sequence[DataType | None]
) -> Callable[..., bool]:
    """`check(sizes, strides, addresses, values) -> bool`: whether every fact holds, as `ir.facts.holds` defines it."""
    index = {name: i for i, name in enumerate(plan.tensor_arguments)}
    scope: dict[str, Any] = {"abs": abs}
    lines = ["def check(sizes, strides, addresses, values):"]
    used = sorted({index[t] for f in facts if not isinstance(f, LoopBound) for t in _tensors_of(f)})
    for i in used:
        for prefix, source in (("n", "sizes"), ("s", "strides")):
            names = "".join(f"{prefix}{i}_{d}, " for d in range(ranks[i]))
            if names:
                lines.append(f"    {names}= {source}[{i}]")
        empty = " or ".join(f"not n{i}_{d}" for d in range(ranks[i])) or "False"
        lines.append(f"    e{i} = {empty}")
    told = stride_facts(facts)
    for k, fact in enumerate(facts):
        if isinstance(fact, LoopBound):
            for j, product in enumerate(fact.products):
                scope[f"x{k}_{j}"] = product
                lines.append(f"    if values[x{k}_{j}] > {fact.limit}: return False")
            continue
        i = index[fact.tensor]
        match fact:
            case ExtentIs(_, dim, value):
                condition = f"n{i}_{dim} == {value}"
            case ExtentDivisible(_, dim, divisor):
                condition = f"n{i}_{dim} % {divisor} == 0"
            case ExtentWithin(_, dim, low, high):
                condition = f"{low} <= n{i}_{dim} <= {high}"
            case UnitStride(_, dim):
                condition = f"e{i} or s{i}_{dim} == 1 or n{i}_{dim} == 1"
            case ZeroStride(_, dim):
                condition = f"e{i} or s{i}_{dim} == 0 or n{i}_{dim} == 1"
            case DenseStride(tensor, dim, inner):
                stride = told_stride(told, tensor, inner)
                base = str(stride.constant) if stride.base is None else f"s{i}_{stride.base}"
                product = " * ".join((base, *(f"n{i}_{d}" for d in (inner, *stride.extents))))
                condition = f"e{i} or n{i}_{dim} == 1 or s{i}_{dim} == {product}"
            case StrideDivisible(_, dim, nbytes):
                itemsize = (dtypes[i] or DataType.Float).itemsize
                condition = f"e{i} or n{i}_{dim} == 1 or s{i}_{dim} * {itemsize} % {nbytes} == 0"
            case Aligned(_, nbytes):
                condition = f"e{i} or addresses[{i}] % {nbytes} == 0"
            case IndexBound(_, limit):
                reach = " + ".join(f"(n{i}_{d} - 1) * abs(s{i}_{d})" for d in range(ranks[i])) or "0"
                condition = f"e{i} or {reach} <= {limit}"
            case Disjoint(_, other):
                j = index[other]
                for t in (i, j):
                    lines += _range_lines(t, ranks[t], (dtypes[t] or DataType.Float).itemsize)
                unplaced = f"not addresses[{i}] or not addresses[{j}]"
                condition = f"e{i} or e{j} or {unplaced} or high{i} <= low{j} or high{j} <= low{i}"
            case _:
                assert_never(fact)
        lines.append(f"    if not ({condition}): return False")
    lines.append("    return True")
    return _build("check", lines, scope)


def _range_lines(i: int, rank: int, itemsize: int) -> list[str]:
    """Lines that compute low<i> and high<i>, the addresses of a tensor's stored bytes."""
    lines = [f"    low{i} = high{i} = addresses[{i}]", f"    if not e{i}:", f"        high{i} += {itemsize}"]
    for d in range(rank):
        lines += [
            f"        span = (n{i}_{d} - 1) * s{i}_{d} * {itemsize}",
            f"        if span < 0: low{i} += span",
            f"        else: high{i} += span",
        ]
    return lines


def _tensors_of(fact: Fact) -> tuple[str, ...]:
    if isinstance(fact, LoopBound):
        return ()
    return (fact.tensor, fact.other) if isinstance(fact, Disjoint) else (fact.tensor,)


# --- words ------------------------------------------------------------------------------------------------------------


def _describe(fact: Fact) -> str:
    match fact:
        case ExtentIs(tensor, dim, value):
            return f"extent {value} of dimension {dim} of {tensor}"
        case ExtentDivisible(tensor, dim, divisor):
            return f"an extent of dimension {dim} of {tensor} that is divisible by {divisor}"
        case ExtentWithin(tensor, dim, low, high):
            return f"an extent of dimension {dim} of {tensor} between {low} and {high}"
        case UnitStride(tensor, dim):
            return f"stride 1 in dimension {dim} of {tensor}"
        case ZeroStride(tensor, dim):
            return f"stride 0 in dimension {dim} of {tensor}"
        case DenseStride(tensor, dim, inner):
            return f"dimension {dim} of {tensor} stored densely outside dimension {inner}"
        case StrideDivisible(tensor, dim, nbytes):
            return f"a stride of dimension {dim} of {tensor} that is a multiple of {nbytes} bytes"
        case Aligned(tensor, nbytes):
            return f"{tensor} aligned to {nbytes} bytes"
        case IndexBound(tensor, limit):
            return f"offsets of at most {limit} elements in {tensor}"
        case LaunchBound(limit, _):
            return f"at most {limit} blocks or threads where extents say how many"
        case LoopBound(limit, _):
            return f"loops of at most {limit} steps"
        case Disjoint(tensor, other):
            return f"{tensor} and {other} in memory that does not overlap"
        case _:
            assert_never(fact)


def _describe_actual(fact: Fact, tensors: Mapping[str, TensorDescriptor]) -> str:
    match fact:
        case LoopBound():
            return "larger extents"
        case Aligned(tensor, _):
            return f"a base address aligned to {tensors[tensor].alignment} bytes"
        case Disjoint(tensor, other):
            a, b = tensors[tensor].byte_range, tensors[other].byte_range
            return f"bytes [{a[0]:#x}, {a[1]:#x}) and [{b[0]:#x}, {b[1]:#x})"
        case ExtentIs(tensor, dim) | ExtentDivisible(tensor, dim) | ExtentWithin(tensor, dim):
            return f"extent {tensors[tensor].sizes[dim]} (shape {list(tensors[tensor].sizes)})"
        case (
            UnitStride(tensor) | ZeroStride(tensor) | DenseStride(tensor) | StrideDivisible(tensor) | IndexBound(tensor)
        ):
            return f"shape {list(tensors[tensor].sizes)} with strides {list(tensors[tensor].strides)}"
        case _:
            assert_never(fact)
