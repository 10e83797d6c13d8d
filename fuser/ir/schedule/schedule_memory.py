"""Verbs on where a tensor lives and when it is loaded: memory type, order and places of its elements, loads ahead."""

from __future__ import annotations

from collections.abc import Sequence

from fuser.errors import NotSupportedError, SchedulingError
from fuser.ir.fusion.fusion import IterDomain, Pointwise, Tensor, is_copy
from fuser.ir.ops.enums import GLOBAL_MEMORY, CacheOp, LoadStoreOpType, MemoryType
from fuser.ir.schedule.scheduled_fusion import KeptIterations, Record, ScheduledFusion, TensorState


class MemoryVerbs(ScheduledFusion):
    """Memory, allocation domain, swizzles, loads ahead."""

    def set_memory_type(self, name: str, memory: MemoryType) -> None:
        """Where a tensor lives; inputs and outputs stay global."""
        if name in self.input_names or name in self.output_names:
            if memory is not GLOBAL_MEMORY:
                raise SchedulingError(
                    f"cannot move {name} to {memory.name} memory: inputs and outputs stay in global memory"
                )
        if memory in (MemoryType.tensor, MemoryType.symmetric):
            raise NotSupportedError(f"MemoryType.{memory.name} is not supported yet")
        self.state(name).memory = memory
        self.records.append(Record("set_memory_type", name, (memory,)))

    def set_cache_op(self, name: str, cache_op: CacheOp) -> None:
        """Hint for the access to device memory of the copy that defines `name`: for its read, or for its store where it is an
        output. `streaming` lines are the first to leave the cache, those of `evict_last` reads the last. Raises
        SchedulingError for other tensors."""
        expr = self.definition(name)
        if not (isinstance(expr, Pointwise) and expr.op == "set"):
            raise SchedulingError(f"cannot hint how {name} is cached: it is no copy")
        self.state(name).cache_op = cache_op
        self.records.append(Record("set_cache_op", name, (cache_op,)))

    def allow_misaligned(self, name: str) -> None:
        """Let the vector accesses of a copy begin anywhere, and let the ends of a row cut them.

        Without it lowering refuses a vectorized axis whose accesses are not known to be aligned and whole. With it, what is
        read at any address takes a few narrower accesses, what is written there and vectors that are cut take one for each
        element. Raises SchedulingError for what is no copy.
        """
        expr = self.definition(name)
        if expr is None or not is_copy(expr):
            raise SchedulingError(f"cannot misalign the vectors of {name}: it is no copy")
        self.state(name).misaligned = True
        self.records.append(Record("allow_misaligned", name, ()))

    def set_allocation_domain(self, name: str, dims: Sequence[IterDomain | int | str], contiguity: bool = True) -> None:
        """Memory order, slowest first: logical dims (or their positions among them), or loop axes (or `loop:<position>`), each
        exactly once."""
        state = self.state(name)
        visible = list(state.tensor.visible)
        loop = [a for a in state.loop if not a.is_reduction]
        chosen = [
            visible[d] if isinstance(d, int) else state.loop[int(d.removeprefix("loop:"))] if isinstance(d, str) else d
            for d in dims
        ]
        if sorted(map(id, chosen)) == sorted(map(id, visible)):
            arguments: tuple[object, ...] = (tuple(visible.index(d) for d in chosen), contiguity)
            if name in self.output_names or name in self.input_names:
                self._relayout(state, [visible.index(d) for d in chosen])
        elif sorted(map(id, chosen)) == sorted(map(id, loop)) and name not in self.output_names | self.input_names:
            arguments = (tuple(f"loop:{state.loop.index(d)}" for d in chosen), contiguity)
        else:
            raise SchedulingError(
                f"the allocation domain of {name} must be a permutation of its logical domain or of its loop domain, got {dims}"
            )
        state.allocation = tuple(chosen)
        state.swizzles = ()
        self.records.append(Record("set_allocation_domain", name, arguments))

    def swizzle(self, name: str, by: int, axis: int) -> None:
        """Permute the places along an axis of the allocation domain: what has index j lies at j ^ (i % extent), where i is the
        index along another axis. Neighbours along `by` then lie in different banks of shared memory.

        by, axis   positions in the allocation domain; the extent of `axis` is a constant power of two
        """
        state = self.state(name)
        if state.allocation is None or state.memory is not MemoryType.shared:
            raise SchedulingError(f"cannot swizzle {name}: it needs an allocation domain in shared memory first")
        count = len(state.allocation)
        if not (0 <= by < count and 0 <= axis < count) or by == axis:
            raise SchedulingError(
                f"cannot swizzle axis {axis} of {name} by {by}: its allocation domain has {count} axes"
            )
        extent = state.allocation[axis].extent
        if not extent.is_const or extent.value < 1 or extent.value & (extent.value - 1):
            raise SchedulingError(
                f"cannot swizzle axis {axis} of {name}: its extent {extent} is no constant power of two"
            )
        if any(axis in pair or by == swizzled for pair in state.swizzles for swizzled in pair[1:]):
            raise SchedulingError(
                f"cannot swizzle axis {axis} of {name} by {by}: one of them takes part in a swizzle already"
            )
        state.swizzles = (*state.swizzles, (by, axis))
        self.records.append(Record("swizzle", name, (by, axis)))

    def _relayout(self, state: TensorState, order: list[int]) -> None:
        """A global tensor's allocation order is its stride order."""
        t = state.tensor
        stride_order = [0] * len(order)
        for position, dim in enumerate(order):
            stride_order[dim] = len(order) - 1 - position
        contiguity = tuple(None if t.visible[d].is_broadcast or t.visible[d].expanded else True for d in order)
        self._replace_tensor(
            t, Tensor(t.name, t.dtype, t.logical, tuple(stride_order), contiguity, t.root, t.is_cpu, t.location)
        )

    def keep_iterations(self, name: str, again: str, iterations: int, last_in_registers: bool = False) -> None:
        """Keep on chip what a copy of an input loads in some iterations of its loop, for `again`, another copy, whose loop runs
        the other way.

        iterations, last_in_registers    see KeptIterations

        Raises SchedulingError for tensors that are no copies of one input in registers, and in lowering where their loops do
        not go over the same in opposite order.
        """
        exprs = [self.definition(n) for n in (name, again)]
        sources = {e.inputs[0] for e in exprs if isinstance(e, Pointwise) and e.op == "set"}
        in_registers = all(self.state(n).memory is MemoryType.local for n in (name, again))
        if len(exprs) != 2 or len(sources) != 1 or not in_registers or not sources & set(self.fusion.input_tensors):
            raise SchedulingError(
                f"cannot keep what {name} loads for {again}: they are no copies of one input in registers"
            )
        if iterations < 0 or iterations + last_in_registers < 1:
            raise SchedulingError(f"cannot keep {iterations} iterations of {name}")
        self.kept_iterations.append(KeptIterations(name, again, iterations, last_in_registers))
        self.records.append(Record("keep_iterations", name, (again, iterations, last_in_registers)))

    def load_ahead(self, name: str, best_effort: bool = False, iterations: int = 1) -> None:
        """Load a copy of an input for the next iteration of the serial loop that it is inlined in, while this one computes.

        It then takes its registers twice. In shared memory each thread copies what it has just read for the last time in this
        iteration anew. Two `iterations` ahead, every other iteration has a buffer of its own: copies overlap with a whole one.
        Raises SchedulingError for a tensor that is no copy of an input in registers, nor an asynchronous one; lowering
        raises it, unless `best_effort`, where no serial loop fills the copy, the kernel writes the input, or threads read what
        others copied.
        """
        expr, state = self.definition(name), self.state(name)
        is_copy = isinstance(expr, Pointwise) and expr.op == "set" and expr.inputs[0] in self.fusion.input_tensors
        if not is_copy or not (state.memory is MemoryType.local or state.op_type is LoadStoreOpType.cp_async):
            raise SchedulingError(
                f"cannot load {name} ahead: it is no copy of an input in registers, nor an asynchronous one"
            )
        if iterations not in ((1,) if state.memory is MemoryType.local else (1, 2)):
            raise SchedulingError(
                f"cannot load {name} {iterations} iterations ahead: one in registers, two in shared memory"
            )
        self.state(name).loads_ahead = True
        self.state(name).iterations_ahead = iterations
        self.state(name).must_load_ahead = not best_effort
        more = (best_effort, iterations) if iterations > 1 else (True,) if best_effort else ()
        self.records.append(Record("load_ahead", name, more))
