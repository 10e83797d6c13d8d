"""`Fusion`, the container a user holds: a builder while its definition is open, then an immutable `ir.Fusion` with its
current schedule. Also `FusionGuard`, which makes one the active fusion.

Handles come into being through a `Fusion` only: with this module their classes are complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from fuser.errors import DefinitionRuntimeError, DefinitionTypeError, SchedulingError
from fuser.frontend.active_fusion import activate, active_fusion, deactivate
from fuser.frontend.complete_handles import (
    BroadcastOp,
    Expr,
    IterDomain,
    Merge,
    ReshapeOp,
    Split,
    SqueezeOp,
    TensorView,
    Val,
)
from fuser.frontend.operation import is_number, meant_value
from fuser.ir.fusion import fusion as ir
from fuser.ir.fusion.fusion import undefined_leaves
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.fusion.print_fusion import math_text, typed_text
from fuser.ir.ops.dtypes import DataType
from fuser.missing_names import says_instead
from fuser.source_location import caller_location
from fuser.tracebacks import short_tracebacks

if TYPE_CHECKING:
    from types import TracebackType

    from fuser.compiler.compile_params import CompileParams
    from fuser.ir.integers.integers import Int
    from fuser.ir.schedule.schedule import ScheduleBuilder


_RUN = "fd.execute([x, y]) runs it, fd being its FusionDefinition"
_KERNEL = (
    "fd.explain(inputs, file=False).stage('kernel.cu') is the text of its kernels, KernelCompiler().compile(fd, inputs) "
    "makes one"
)


@says_instead(
    _RUN,
    {
        **dict.fromkeys(("execute", "run", "manual_execute", "launch", "call", "forward"), _RUN),
        **dict.fromkeys(("kernel", "kernels", "source", "code", "cuda", "ptx", "compile"), _KERNEL),
        "explain": "fd.explain([x, y]) shows each stage of its compilation",
        "program": "fd.program([x, y]) is the host program that fd.execute runs",
        **dict.fromkeys(
            ("define_tensor", "define_scalar", "define_vector"),
            "fd.define_tensor and its like define inputs, fd being its FusionDefinition",
        ),
        **dict.fromkeys(("ops", "sched"), "fd.ops and fd.sched have them, fd being its FusionDefinition"),
        **dict.fromkeys(("exprs", "expressions", "print"), "fusion.print_math() shows its exprs"),
        "tensors": "fusion.vals() are all its values",
    },
    items="fusion.inputs() and fusion.outputs() are lists",
)
@short_tracebacks
class Fusion:
    """A fusion as a user holds it.

    Open: ops, inputs and outputs can be added. A scheduling verb freezes it; so does `close`. What was defined before
    stays valid and printable. `==` and `hash` are structural.
    """

    __slots__ = (
        "__weakref__",
        "_builder",
        "_closed",
        "_exprs",
        "_extents",
        "_scheduled",
        "_sizes",
        "_snapshot",
        "_transforms",
        "_vals",
        "schedule",
    )

    def __init__(self) -> None:
        self._builder = FusionBuilder()
        self._closed: str | None = None
        self._snapshot: tuple[tuple[int, int, int], ir.Fusion] | None = None
        self._vals: dict[str, Val] = {}
        self._exprs: dict[ir.Expr, Expr] = {}
        self._transforms: dict[ir.IterDomain | ir.Transform, IterDomain | Expr] = {}
        self._sizes: dict[tuple[str, int], Val] = {}
        self._extents: dict[Int, Val] = {}
        self.schedule: ScheduleBuilder | None = None
        # Why no verb can follow.
        self._scheduled: str | None = None

    # --- state ---

    @property
    def is_open(self) -> bool:
        """Whether ops can still be added."""
        return self._closed is None

    def close(self, reason: str = "its definition is complete, the `with` block has ended") -> None:
        """From here on nothing can be added; `reason` says why in the error."""
        if self._closed is None:
            self._closed = reason

    def builder(self) -> FusionBuilder:
        """The builder of an open fusion. Raises DefinitionRuntimeError if the fusion is closed."""
        if self._closed is not None:
            active = active_fusion()
            is_here = active is None or active is self
            elsewhere = "" if is_here else "; values are used in the block that made them, and this is another"
            raise DefinitionRuntimeError(
                f"nothing can be added to this fusion: {self._closed}{elsewhere}", location=caller_location()
            )
        return self._builder

    @property
    def ir_fusion(self) -> ir.Fusion:
        """The immutable fusion as defined so far, without its schedule."""
        b = self._builder
        version = (len(b.inputs), len(b.exprs), len(b.outputs))
        if self._snapshot is None or self._snapshot[0] != version:
            self._snapshot = (version, b.freeze())
        return self._snapshot[1]

    @property
    def all_exprs(self) -> list[ir.Expr]:
        """Every expr defined so far, dead ones too."""
        return self._builder.exprs

    def start_schedule(self) -> ScheduleBuilder:
        """The schedule, begun by the first verb, which freezes the definition.

        Raises SchedulingError once `end_schedule` was called.
        """
        if self._scheduled is not None:
            raise SchedulingError(
                f"this fusion cannot be scheduled any more: {self._scheduled}", location=caller_location()
            )
        if self.schedule is None:
            from fuser.ir.schedule.schedule import ScheduleBuilder
            from fuser.optimize.assign_output_layouts import assign_output_layouts

            self.close("scheduling has begun; define every op, input and output before the first scheduling call")
            self.schedule = ScheduleBuilder(assign_output_layouts(self.ir_fusion))
        return self.schedule

    def end_schedule(self, reason: str) -> None:
        """From here on no verb would have an effect; `reason` says why in the error."""
        if self._scheduled is None:
            self._scheduled = reason

    # --- as scheduled so far ---

    def current_exprs(self) -> Sequence[ir.Expr]:
        """Exprs as scheduled so far, host arithmetic included."""
        if self.schedule is None:
            return self.all_exprs
        host = [e for e in self.ir_fusion.exprs if isinstance(e, (ir.ScalarOp, ir.ExtentOp))]
        return [*host, *self.schedule.exprs]

    def current_tensor(self, tensor: ir.Tensor) -> ir.Tensor:
        """The tensor as verbs left it (rfactor changes its dims)."""
        if self.schedule is None or tensor.name not in self.schedule.states:
            return tensor
        return self.schedule.state(tensor.name).tensor

    def loop_domain(self, tensor: ir.Tensor) -> Sequence[ir.IterDomain]:
        """Axes of the loop nest of a tensor."""
        if self.schedule is None or tensor.name not in self.schedule.states:
            return tensor.logical
        return self.schedule.state(tensor.name).loop

    # --- handles ---

    def handle(self, value: ir.Val) -> Val:
        """The one handle of a value."""
        found = self._vals.get(value.name)
        if found is None:
            found = TensorView(self, value) if isinstance(value, ir.Tensor) else Val(self, value)
            self._vals[value.name] = found
        return found

    def tensor_handle(self, value: ir.Tensor) -> TensorView:
        """The one handle of a tensor."""
        found = self.handle(value)
        assert isinstance(found, TensorView)
        return found

    def expr_handle(self, expr: ir.Expr) -> Expr:
        """The one handle of an expr."""
        found = self._exprs.get(expr)
        if found is None:
            kinds: dict[type, type[Expr]] = {ir.Broadcast: BroadcastOp, ir.Reshape: ReshapeOp, ir.Squeeze: SqueezeOp}
            cls = kinds.get(type(expr), Expr)
            operands = [self.handle(v) for v in ir.expr_inputs(expr)]
            found = cls(self, expr, operands, [self.handle(v) for v in ir.expr_outputs(expr)])
            self._exprs[expr] = found
        return found

    def axis_handle(self, tensor: TensorView, domain: ir.IterDomain) -> IterDomain:
        """The one handle of an axis."""
        found = self._transforms.get(domain)
        if found is None:
            found = self._transforms[domain] = IterDomain(tensor, domain)
        assert isinstance(found, IterDomain)
        return found

    def transform_handle(self, tensor: TensorView, transform: ir.Transform) -> Expr:
        """The one handle of a split or merge."""
        found = self._transforms.get(transform)
        if found is None:
            if isinstance(transform, ir.Split):
                sources, results = [transform.source], [transform.outer, transform.inner]
                cls = Split
            else:
                sources, results = [transform.outer, transform.inner], [transform.result]
                cls = Merge
            found = self._transforms[transform] = cls(
                self,
                transform,
                [self.axis_handle(tensor, d) for d in sources],
                [self.axis_handle(tensor, d) for d in results],
            )
        assert isinstance(found, Expr)
        return found

    def size(self, tensor: TensorView, dim: int) -> Val:
        """The extent of a visible dim; made once per dim, as an op while the fusion is open."""
        key = (tensor.node.name, dim)
        found = self._sizes.get(key)
        if found is None:
            extent = tensor.node.visible[dim].extent
            found = self.handle(self._builder.size(tensor.node, dim)) if self.is_open else self.extent_handle(extent)
            self._sizes[key] = found
        return found

    def extent_handle(self, extent: Int) -> Val:
        """A Val of an extent that is only looked at: it stands for no op of the fusion."""
        found = self._extents.get(extent)
        if found is None:
            value = extent.value if extent.is_const else None
            found = self._extents[extent] = Val(self, ir.Scalar(str(extent), DataType.Int, value, extent))
        return found

    # --- what users call ---

    def inputs(self) -> list[Val]:
        """Fusion inputs in registration order."""
        return [self.handle(v) for v in self._builder.inputs]

    def outputs(self) -> list[Val]:
        """Registered outputs in order."""
        return [self.handle(o.tensor) for o in self._builder.outputs]

    def vals(self) -> list[Val]:
        """Every value that an input or an expr made, in order of creation."""
        made = [*self._builder.inputs, *(v for e in self._builder.exprs for v in ir.expr_outputs(e))]
        return [self.handle(v) for v in dict.fromkeys(made)]

    def add_input(self, val: Val) -> None:
        """Register a value made by the module's define_tensor or define_scalar as the next input.

        Raises DefinitionRuntimeError if it is an input already, computed, a constant, or of another fusion.
        """
        builder = self.builder()
        self.check_member(val, "add_input")
        node = val.node
        what = str(val)
        if node in builder.inputs:
            raise DefinitionRuntimeError(f"{what} is an input already", location=caller_location())
        if any(node in ir.expr_outputs(e) for e in builder.exprs):
            raise DefinitionRuntimeError(f"{what} is computed, it cannot be an input", location=caller_location())
        if not val.is_symbolic():
            raise DefinitionRuntimeError(f"{what} is a constant, it cannot be an input", location=caller_location())
        builder.inputs.append(node)

    @overload
    def add_output(self, output: Val) -> None: ...
    @overload
    def add_output(self, output: Val, alias_input: Val | None) -> None: ...
    def add_output(self, output: Val, alias_input: Val | None = None) -> None:
        """Return `output`; with `alias_input` write it to that input's storage instead and return nothing.

        All inputs are read as they were before the run, and so may share memory with one that is updated. Of one whose memory
        is read after the kernel that makes `output`, that is a temporary, copied at the end (a Copy of `fd.program(inputs)`).

        Raises DefinitionRuntimeError for a scalar, and for an alias that is no fusion input, is updated already, or has
        another rank, dtype or static extent.
        """
        builder = self.builder()
        where = caller_location()
        for value in (output,) if alias_input is None else (output, alias_input):
            if not isinstance(value, Val):
                raise DefinitionTypeError(
                    "add_output(): incompatible function arguments. It takes a TensorView and, for an in-place update, "
                    f"a TensorView that is a fusion input; got {type(value).__name__}" + _meant_output(value),
                    location=where,
                )
            self.check_member(value, "add_output")
            if not isinstance(value, TensorView):
                raise DefinitionRuntimeError(
                    f"add_output() takes tensors, got the scalar {value}; to return it, make a tensor of it with "
                    "fd.ops.full([1], scalar, dtype)",
                    location=where,
                )
        assert isinstance(output, TensorView)
        tensor = output.node
        if alias_input is None:
            builder.add_output(tensor)
            return
        assert isinstance(alias_input, TensorView)
        target = alias_input.node
        if target not in builder.inputs:
            raise DefinitionRuntimeError(
                f"alias_input must be a fusion input, which is updated in place, and {alias_input} is not one; "
                "outputs are named by a call of add_output each",
                location=where,
            )
        if tensor.ndim != target.ndim:
            raise DefinitionRuntimeError(
                f"the output has rank {tensor.ndim} and cannot be written to an input of rank {target.ndim}",
                location=where,
            )
        if tensor.dtype is not target.dtype:
            raise DefinitionRuntimeError(
                f"the output has dtype {tensor.dtype.name} and cannot be written to an input of dtype "
                f"{target.dtype.name}; cast it first",
                location=where,
            )
        rival = next((o.tensor for o in builder.outputs if o.alias_of is target), None)
        if rival is not None:
            raise DefinitionRuntimeError(f"{alias_input} is updated by {rival.name} already", location=where)
        if tensor in builder.inputs or any(o.tensor is tensor and o.alias_of is not None for o in builder.outputs):
            # An input written over another one, or a value written over two: the copy is an op of its own, so that it has
            # storage of its own.
            tensor = builder.pointwise("set", [tensor], tensor.dtype)
        builder.add_output(tensor, target)

    def check_leaves(self) -> None:
        """Raise DefinitionRuntimeError if an output needs a tensor or scalar that is no input, naming where it was made."""
        leaf = next(iter(undefined_leaves(self.ir_fusion)), None)
        if leaf is not None:
            raise DefinitionRuntimeError(
                f"an output needs {typed_text(leaf)}, which is no input of the fusion: register it with add_input, or "
                "define it with fd.define_tensor or fd.define_scalar",
                location=leaf.location,
            )

    def check_member(self, val: Val, op: str) -> None:
        """Raise DefinitionRuntimeError unless `val` belongs to this fusion."""
        if not isinstance(val, Val):
            raise DefinitionTypeError(
                f"{op}(): incompatible function arguments. Expected a value of the fusion, got {type(val).__name__}",
                location=caller_location(),
            )
        if val.fusion is not self:
            raise DefinitionRuntimeError(
                f"{op}(): {val} belongs to another fusion; values are used in the `with` block that made them",
                location=caller_location(),
            )

    def print_math(self, from_outputs_only: bool = True) -> str:
        """The exprs as text, as scheduled so far; without `from_outputs_only` also those that no output needs."""
        if self.schedule is not None or not from_outputs_only:
            return math_text(self.ir_fusion, self.current_exprs())
        return math_text(self.ir_fusion)

    def print_kernel(self, compile_params: CompileParams | None = None) -> str:
        """CUDA source of the fusion as currently scheduled."""
        from fuser.compiler.kernel_executor import KernelExecutor

        return KernelExecutor().source_of(self, compile_params)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Fusion) and self.ir_fusion == other.ir_fusion

    def __hash__(self) -> int:
        return hash(self.ir_fusion)

    def __repr__(self) -> str:
        return self.print_math()


@short_tracebacks
class FusionGuard:
    """Makes `fusion` the active one from construction until `close()`, context exit or collection; nests."""

    __slots__ = ("__weakref__", "_open", "fusion")

    def __init__(self, fusion: Fusion) -> None:
        if not isinstance(fusion, Fusion):
            raise DefinitionTypeError(
                f"FusionGuard(): incompatible function arguments. Expected a Fusion, got {type(fusion).__name__}",
                location=caller_location(),
            )
        self.fusion = fusion
        self._open = True
        activate(id(self), fusion)

    def close(self) -> None:
        """Stop being the active fusion. Does nothing the second time."""
        if self._open:
            self._open = False
            deactivate(id(self))

    def __enter__(self) -> FusionGuard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.close()


def _meant_output(value: object) -> str:
    """What to write in place of an output that is no tensor."""
    if isinstance(value, (list, tuple)):
        return ": call it once per output"
    if value is None:
        return ": does the function that made it return it?"
    if is_number(value):
        return ": fd.ops.full([1], value, dtype) makes a tensor of a number"
    return meant_value(value)
