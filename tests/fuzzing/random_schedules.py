"""Random small fusions under random legal schedules, from a seed.

    case = generate(seed)            a fusion, inputs of small whole numbers, a schedule and facts that hold
    features(case, kernel)           what the schedule really exercises, for quotas
    replay(text, fusion)             a printed schedule applied to a fresh copy

Every intermediate value is a whole number that its dtype holds exactly, whatever the order of summation, so results are
compared bit by bit. The simulator test and the GPU test use the same cases.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

import numpy as np

from fuser.errors import SchedulingError
from fuser.ir.facts import Facts
from fuser.ir.fusion.fusion import Fusion, IterDomain, Merge, Pointwise, Reduction, Split, Tensor, tensor_outputs
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.fusion.iteration_graph import IterationGraph
from fuser.ir.integers.integers import Int, Symbol
from fuser.ir.kernel.kernel import AsyncCopy, If, Kernel, Role, VectorMove, walk
from fuser.ir.ops import enums
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.judging.harness import NARROW, collect_facts
from tests.judging.oracle import Array, extent_values

_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 20, 24, 31, 32, 33, 40, 48, 64)
_MOST_ELEMENTS = 2048
_EXACT = 1 << 22  # whole numbers that Float holds, with room for one more addition
_GRID = (ParallelType.grid_x, ParallelType.grid_y, ParallelType.grid_z)
_BLOCK = (ParallelType.block_x, ParallelType.block_y, ParallelType.block_z)


@dataclass(frozen=True, slots=True, eq=False)
class RandomCase:
    """`seed` makes it again."""

    seed: int
    fusion: Fusion
    schedule: ScheduleBuilder
    inputs: list[Array]
    facts: Facts


# --- fusions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Value:
    """A tensor over all dims (`full`), with a bound on its magnitude."""

    tensor: Tensor
    bound: int


class _FusionMaker:
    """One random fusion: `fusion`, `inputs`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.b = FusionBuilder()
        self.inputs: list[Array] = []
        self.rank = rng.choice((1, 2, 2, 2, 2, 3, 3))
        self.sizes = self._sizes()
        self.static = [rng.random() < 0.3 and n > 1 for n in self.sizes]
        self.dtype = rng.choice((DataType.Float,) * 4 + (DataType.Int32, DataType.Int32, DataType.Double, DataType.Int))
        # Inputs over all dims in order.
        self.plain: list[Tensor] = []

    def _sizes(self) -> list[int]:
        while True:
            sizes = [self.rng.choice(_SIZES) for _ in range(self.rank)]
            if self.rng.random() < 0.75:
                sizes[-1] = self.rng.choice((4, 8, 12, 16, 20, 32, 40, 64))
            if self.rng.random() < 0.01:
                sizes[self.rng.randrange(self.rank)] = 0
            if np.prod(sizes) <= _MOST_ELEMENTS:
                return sizes

    def make(self) -> Fusion:
        rng = self.rng
        reductions = rng.choices((0, 1, 2), (40, 42, 18))[0]
        sources = [self._input() for _ in range(rng.choice((1, 1, 2, 2, 3)))]
        if reductions == 0:
            value = self._chain(sources, rng.randint(1, 4))
            if rng.random() < 0.15:
                self.b.add_output(value.tensor)
                value = self._chain([value, *sources], 1)
            if self.rank > 1 and rng.random() < 0.1:
                order = self._order()
                self.b.add_output(self.b.permute(value.tensor, order))
            else:
                self._output(value)
            return self.b.freeze()
        axes = sorted(rng.sample(range(self.rank), rng.choice((1, 1, min(2, self.rank), self.rank))))
        value = self._chain(sources, rng.randint(0, 2))
        results = [self._reduce(value, axes)]
        if reductions == 2:
            other = value
            if rng.random() < 0.5:
                other = self._chain([*sources, self._spread(results[0], axes)], 1)
            results.append(self._reduce(other, axes))
        if rng.random() < 0.55:
            wide = [self._spread(r, axes) for r in results]
            self._output(self._chain([rng.choice(sources), *wide], len(wide), all_of_them=True))
        else:
            for r in results if rng.random() < 0.5 else results[-1:]:
                self.b.add_output(
                    self.b.pointwise("neg", [r.tensor], r.tensor.dtype) if rng.random() < 0.3 else r.tensor
                )
            if len(self.b.outputs) < len(results):
                total = self.b.pointwise("maximum", [r.tensor for r in results], self.dtype)
                self.b.outputs.clear()
                self.b.add_output(total)
        return self.b.freeze()

    def _order(self) -> list[int]:
        order = list(range(self.rank))
        while order == sorted(order):
            self.rng.shuffle(order)
        return order

    def _shape(self, dims: Sequence[int]) -> list[int]:
        return [self.sizes[d] if self.static[d] else -1 for d in dims]

    def _input(self) -> _Value:
        """An input over all dims, some of them permuted or broadcast; sometimes narrow or padded in memory."""
        rng, dims = self.rng, list(range(self.rank))
        kinds = ("plain", "permuted", "broadcast", "narrow", "squeezed", "counted")
        kind = rng.choices(kinds, (60, 15, 20, 10, 5, 5))[0]
        if kind == "squeezed":
            at = rng.randint(0, self.rank)
            t = self._new_input(self.dtype, [*dims[:at], -1, *dims[at:]])
            return _Value(self.b.squeeze(t, [d == at for d in range(self.rank + 1)]), 3)
        if kind == "counted":
            counted = self._counted()
            if counted is not None:
                return counted
        if kind == "permuted" and self.rank > 1:
            order = self._order()
            t = self._new_input(self.dtype, order)
            back = [order.index(d) for d in range(self.rank)]
            return _Value(self.b.permute(t, back), 3)
        if kind == "broadcast" and self.rank > 1:
            kept = sorted(rng.sample(dims, rng.randint(1, self.rank - 1)))
            t = self._new_input(self.dtype, kept)
            return _Value(self.b.broadcast(t, [d not in kept for d in dims]), 3)
        if kind == "narrow" and self.dtype is DataType.Float:
            t = self._new_input(rng.choice((DataType.Half, DataType.BFloat16)), dims)
            return _Value(self.b.pointwise("cast", [t], DataType.Float), 3)
        return _Value(self._new_input(self.dtype, dims), 3)

    def _counted(self) -> _Value | None:
        """Positions along a dim, or one number everywhere."""
        rng, b = self.rng, self.b
        dim = rng.randrange(self.rank)
        extents = [self._extent(d) for d in range(self.rank)]
        if rng.random() < 0.3 and all(e is not None for e in extents):
            return _Value(b.full([e for e in extents if e is not None], b.constant(2, DataType.Int), self.dtype), 2)
        extent = extents[dim]
        if extent is None:
            return None
        start, step = b.constant(rng.randint(-2, 2), DataType.Int), b.constant(rng.choice((1, -1, 2)), DataType.Int)
        positions = b.pointwise("cast", [b.iota(extent, start, step, DataType.Int)], self.dtype)
        return _Value(b.broadcast(positions, [d != dim for d in range(self.rank)]), 2 * self.sizes[dim] + 2)

    def _new_input(self, dtype: DataType, dims: Sequence[int]) -> Tensor:
        """An input over dims of the fusion; -1 stands for a dim of extent 1."""
        t = self.b.input_tensor(dtype, [1 if d < 0 else n for d, n in zip(dims, self._shape(dims), strict=True)])
        if list(dims) == list(range(self.rank)):
            self.plain.append(t)
        shape = [1 if d < 0 else self.sizes[d] for d in dims]
        draws = np.random.default_rng(self.rng.randrange(1 << 30))
        padded = [*shape[:-1], shape[-1] + (4 if self.rng.random() < 0.1 else 0)]
        x = draws.integers(-3, 4, padded).astype(dtype.numpy)[..., : shape[-1]]
        if len(shape) > 1 and self.rng.random() < 0.08:
            x = np.asfortranarray(x)
        self.inputs.append(x)
        return t

    def _chain(self, values: Sequence[_Value], length: int, *, all_of_them: bool = False) -> _Value:
        rng, b = self.rng, self.b
        current, rest = values[0], list(values[1:])
        if all(v.tensor.visible[0].is_broadcast for v in values if v.tensor.ndim) and len(values) == 1:
            length = max(length, 1)
        for other in rest if all_of_them else []:
            current = self._binary(current, other)
        for _ in range(0 if all_of_them else length):
            if values and rng.random() < 0.65:
                current = self._binary(current, rng.choice(values))
                continue
            op = rng.choice(("neg", "abs", "relu", "set"))
            current = _Value(b.pointwise(op, [current.tensor], current.tensor.dtype), current.bound)
        return current

    def _binary(self, x: _Value, y: _Value) -> _Value:
        op = self.rng.choice(("add", "add", "sub", "mul", "maximum", "minimum"))
        if op == "mul" and x.bound * y.bound > 1000:
            op = "maximum"
        bound = {"mul": x.bound * y.bound}.get(op, x.bound + y.bound)
        if bound > _EXACT:
            op, bound = "maximum", max(x.bound, y.bound)
        operands = [x.tensor, y.tensor] if self.rng.random() < 0.7 else [y.tensor, x.tensor]
        return _Value(self.b.pointwise(op, operands, self.dtype), bound)

    def _reduce(self, value: _Value, axes: Sequence[int]) -> _Value:
        count = int(np.prod([self.sizes[a] for a in axes]))
        op = self.rng.choice(("sum", "sum", "sum", "max", "min"))
        if value.bound * count > _EXACT:
            op = "max"
        t = value.tensor
        gone = [a for a in axes if t.visible[a].is_broadcast]
        if gone:  # a dim of one element: give it its extent first
            extents: list[Int | None] = [None] * self.rank
            for a in gone:
                extents[a] = self._extent(a)
            if any(extents[a] is None for a in gone):
                t = self.b.pointwise("add", [t, self._new_input(self.dtype, range(self.rank))], self.dtype)
                value = _Value(t, value.bound + 3)
            else:
                t = self.b.pointwise("set", [self.b.expand(t, extents)], self.dtype)
        bound = value.bound * max(count, 1) if op == "sum" else value.bound
        return _Value(self.b.reduction(op, t, axes, self.dtype), bound)

    def _extent(self, dim: int) -> Int | None:
        """A dim's extent, where an input over all dims gives it."""
        return self.plain[0].visible[dim].extent if self.plain else None

    def _spread(self, result: _Value, axes: Sequence[int]) -> _Value:
        return _Value(self.b.broadcast(result.tensor, [d in axes for d in range(self.rank)]), result.bound)

    def _output(self, value: _Value) -> None:
        """Register an output over all dims, perhaps written into an input of the same shape."""
        t = value.tensor
        if any(d.is_broadcast for d in t.visible):
            t = self.b.pointwise("add", [t, self._new_input(self.dtype, range(self.rank))], self.dtype)
        shape = self._shape(range(self.rank))
        for i, x in zip(self.b.inputs, self.inputs, strict=True):
            if not isinstance(i, Tensor) or i.dtype is not t.dtype or i.ndim != self.rank:
                continue
            same = (
                x.shape == tuple(self.sizes)
                and [d.extent.value if d.extent.is_const else -1 for d in i.visible] == shape
            )
            if same and not _overlapping(x) and self.rng.random() < 0.28:
                self.b.add_output(t, i)
                return
        self.b.add_output(t)


def _overlapping(x: Array) -> bool:
    return x.size > 0 and any(s == 0 and n > 1 for n, s in zip(x.shape, x.strides, strict=True))


def _rows(x: Array, width: int) -> bool:
    """Whether the last dim is dense and every row starts at a multiple of `width` elements."""
    strides = [s // x.itemsize for s in x.strides]
    return strides[-1] == 1 and all(s % width == 0 for s in strides[:-1])


# --- schedules --------------------------------------------------------------------------------------------------------


class _Scheduler:
    """Applies random verbs; one that refuses is left out (`attempt`)."""

    def __init__(self, rng: random.Random, fusion: Fusion, inputs: Sequence[Array]) -> None:
        self.rng = rng
        self.fusion = fusion
        self.s = ScheduleBuilder(fusion)
        self.values = extent_values(fusion, inputs)
        self.arrays = {t.name: x for t, x in zip(fusion.inputs, inputs, strict=True) if isinstance(t, Tensor)}
        self.caches: list[str] = []
        self.stores: list[str] = []
        self.shared: list[str] = []
        self.vectorized: list[str] = []
        self.reductions = [e for e in self.s.exprs if isinstance(e, Reduction)]
        # Draws of its own: cases without aligned splits and misaligned vectors are as they were before there were any. Of the
        # seed's state, and not of the fusion's text, which has the checkout's path in it.
        self.misaligning = random.Random(repr(rng.getstate()))
        self.misaligned = self.misaligning.random() < 0.45

    def extent(self, axis: IterDomain) -> int:
        return axis.extent.evaluate(self.values)

    def made(self) -> list[str]:
        return [t.name for t in self.s.tensors if t.name not in self.s.input_names]

    def apply(self) -> ScheduleBuilder:
        self._caches()
        reference = self._reference()
        wide = self.rng.random() < 0.75
        self._transform(reference, wide)
        self.attempt(self.s.transform_like, reference)
        references = [reference, *self._rfactor()]
        self._parallelize(references, wide)
        self._layouts()
        if wide:
            self._vectorize()
        self._inline(reference)
        return self.s

    def _caches(self) -> None:
        s, rng = self.s, self.rng
        for t in self.fusion.input_tensors:
            uses = s.uses(t.name)
            if not uses or rng.random() < 0.15:
                continue
            # One copy per use may be inlined into its nest.
            for use in uses:
                if rng.random() < 0.2:
                    continue
                cache_op = rng.choice((CacheOp.unspecified, CacheOp.streaming, CacheOp.all_levels))
                target = [tensor_outputs(use)[0].name]
                self.caches.append(s.cache_after(t.name, LoadStoreOpType.set, cache_op, True, target))
        for t in self.fusion.output_tensors:
            if t.name not in s.input_names and not s.uses(t.name) and rng.random() < 0.8:
                self.stores.append(s.cache_before(t.name))
        for name in self.caches:
            if rng.random() < 0.45:
                s.set_memory_type(name, MemoryType.shared)
                self.shared.append(name)

    def _reference(self) -> str:
        """The tensor whose loops the others follow: a reduction, for it has every dim, else an output."""
        for e in self.s.exprs:
            if isinstance(e, Reduction):
                return e.output.name
        return max(self.s.output_names - self.s.input_names, key=lambda n: (self.s.state(n).tensor.ndim, n))

    def _transform(self, name: str, wide: bool) -> None:
        s, rng = self.s, self.rng
        state = s.state(name)
        if wide and state.loop:
            factor = rng.choice((2, 4, 4))
            split: Callable[..., object] = s.split
            follow = self._rows_to_follow(state.loop[-1]) if self.misaligned else []
            more = (self.misaligning.choice(follow),) if follow and self.misaligning.random() < 0.7 else ()
            self.attempt(s.split_aligned if more else split, name, len(state.loop) - 1, factor, *more)
        last = len(state.loop) - 1 if wide else len(state.loop)
        for _ in range(rng.randint(1, 4)):
            verb = rng.choices(("split", "merge"), (70, 30))[0]
            if verb == "split" and last > 0:
                axis = rng.randrange(last)
                factor = rng.choice((2, 3, 4, 5, 7, 8, 16, 32))
                inner = rng.random() < 0.8
                if self.extent(state.loop[axis]) > 1 and self.attempt(s.split, name, axis, factor, inner):
                    last += 1
            elif verb == "merge" and last > 1:
                axis = rng.randrange(last - 1)
                if self.attempt(s.merge, name, axis):
                    last -= 1
        self._reorder(name, last)

    def _rows_to_follow(self, axis: IterDomain) -> list[str]:
        """Arguments whose neighbours along an axis are neighbours in memory."""
        graph = IterationGraph(self.s.exprs, self.s.tensors)
        found: list[str] = []
        for name in sorted(self.s.input_names | self.s.output_names):
            t = self.s.state(name).tensor
            given = self.arrays.get(name)
            last = t.visible[-1] if t.visible and t.stride_order[-1] == 0 else None
            dense = given is None or (given.ndim > 0 and given.strides[-1] == given.itemsize)
            if last is not None and dense and not last.is_broadcast and graph.group(last) is graph.group(axis):
                found.append(name)
        return found

    def _reorder(self, name: str, last: int) -> None:
        """Iteration axes outside reduction axes, mostly; otherwise any order."""
        state, rng = self.s.state(name), self.rng
        order = list(range(last))
        if rng.random() < 0.4:
            rng.shuffle(order)
        if any(a.is_reduction for a in state.loop[:last]):
            inside = [p for p in order if not state.loop[p].is_reduction and state.loop[p].extent.is_const]
            moved = inside[-1] if inside and rng.random() < 0.25 and state.loop[inside[-1]].extent.value <= 16 else -1
            order.sort(key=lambda p: (state.loop[p].is_reduction, p == moved))
            if moved >= 0:
                order.remove(moved)
                order.append(moved)
        moves = {old: new for new, old in enumerate(order) if old != new}
        if moves:
            self.s.reorder(name, moves)

    def _rfactor(self) -> list[str]:
        """Split reductions in two stages; all of them alike, so that they go on sharing loops."""
        s, rng = self.s, self.rng
        made: list[str] = []
        number = 1
        if rng.random() < 0.08:
            return made
        for e in self.reductions:
            name = self._reduction_name(e)
            axes = [p for p, a in enumerate(s.state(name).loop) if a.is_reduction]
            if len(axes) < 2:
                continue
            number = self.rng.randint(1, len(axes) - 1) if not made else min(number, len(axes) - 1)
            chosen = axes[-number:] if not made and rng.random() < 0.6 else sorted(rng.sample(axes, number))
            # What is kept inside the reduced axes is held per thread.
            inside = [a for p, a in enumerate(s.state(name).loop) if p > chosen[0] and p not in chosen]
            if int(np.prod([self.extent(a) for a in inside], dtype=np.int64)) > 16:
                chosen = axes[-number:]
            first = s.rfactor(name, chosen)
            made.append(str(first))
        return made

    def _reduction_name(self, e: Reduction) -> str:
        found = next(
            (x.output.name for x in self.s.exprs if isinstance(x, Reduction) and x.input.name == e.input.name), None
        )
        return found if found is not None else e.output.name

    def _parallelize(self, references: Sequence[str], wide: bool) -> None:
        """Random axes to blocks and threads, alike on all references; what is left may be unrolled."""
        s, rng = self.s, self.rng
        grid, block = list(_GRID), list(_BLOCK)
        room, blocks, copies = 128, 24, 16
        widest = max(references, key=lambda n: len(s.state(n).loop))
        graph = s.graph()
        types: dict[object, ParallelType] = {}
        loop = s.state(widest).loop
        for position, axis in enumerate(loop):
            extent = self.extent(axis)
            if wide and position == len(loop) - 1:
                break
            draw = rng.random()
            if draw < 0.4 and block and 1 < extent <= room:
                types[graph.group(axis)] = block.pop(0)
                room //= extent
            elif draw < 0.62 and grid and 1 <= extent <= blocks:
                types[graph.group(axis)] = grid.pop(0)
                blocks //= max(extent, 1)
            elif axis.extent.is_const and 1 < extent <= copies and not axis.is_reduction:
                copies //= extent
                types[graph.group(axis)] = rng.choice(
                    (ParallelType.unroll, ParallelType.unswitch, ParallelType.unswitch)
                )
        # Every execution of a reduction over blocks is a wait, and waits are slow to simulate.
        workers = [a for a in loop if (p := types.get(graph.group(a))) is not None and p.is_grid]
        rounds = [
            a for a in loop if not a.is_reduction and ((p := types.get(graph.group(a))) is None or not p.is_thread)
        ]
        if int(np.prod([self.extent(a) for a in (*workers, *rounds)], dtype=np.int64)) > 64:
            for a in workers:
                if a.is_reduction or len(references) > 1:
                    del types[graph.group(a)]
        for name in self.made():
            for position, axis in enumerate(s.state(name).loop):
                p = types.get(graph.group(axis))
                if p is not None and not (axis.is_reduction and not p.is_thread):
                    s.parallelize(name, position, p)

    def _layouts(self) -> None:
        """Memory orders of intermediates in shared memory and of outputs."""
        s, rng = self.s, self.rng
        for name in self.made():
            tensor = s.state(name).tensor
            if tensor.ndim < 2 or (s.state(name).memory is MemoryType.local and name not in s.output_names):
                continue
            if rng.random() < (0.45 if name in self.shared else 0.2):
                order = list(range(tensor.ndim))
                rng.shuffle(order)
                self.attempt(s.set_allocation_domain, name, order)
        for name in self.made():
            consumed = bool(s.uses(name))
            if consumed and name not in self.caches and name not in s.output_names and rng.random() < 0.06:
                s.set_memory_type(name, MemoryType.shared)
                self.shared.append(name)

    def _inline(self, reference: str) -> None:
        s, rng = self.s, self.rng
        held = [n for n in self.shared if rng.random() < 0.85]
        others = [n for n in self.made() if n not in held]
        depth = rng.randint(0, len(s.state(reference).loop))
        if held and depth:
            self.attempt(s.inline_at, reference, depth, True, held)
        if rng.random() < 0.1:
            self.attempt(s.inline_at, reference, rng.randint(0, len(s.state(reference).loop)), True, others)
        s.inline_most(others)

    def _vectorize(self) -> None:
        """The innermost axis of copies, where it is small and dense on both sides."""
        s, rng = self.s, self.rng
        for name in [*self.caches, *s.output_names]:
            state = s.state(name)
            expr = s.definition(name)
            if not isinstance(expr, Pointwise) or expr.op != "set" or not state.loop or rng.random() < 0.1:
                continue
            axis = state.loop[-1]
            if not axis.extent.is_const or axis.extent.value not in (2, 4) or axis.is_broadcast or axis.is_reduction:
                continue
            if (
                state.parallel_type(axis) is not ParallelType.serial
                or axis.extent.value * state.tensor.dtype.itemsize > 16
            ):
                continue
            if not self._dense(name, axis):
                continue
            s.parallelize(name, len(state.loop) - 1, ParallelType.vectorize)
            if self.misaligned:
                s.allow_misaligned(name)
            self.vectorized.append(name)

    def _dense(self, name: str, axis: IterDomain) -> bool:
        """Whether an axis runs along the last dim, which is divisible and stored densely on both sides."""
        state = self.s.state(name)
        t = state.tensor
        last, width = t.visible[-1], axis.extent.value
        definition = axis.definition
        along = isinstance(definition, Split) and definition.inner is axis and definition.source is last
        if not along or (self.extent(last) % width and not self.misaligned):
            return False
        if (state.allocation is not None and state.allocation[-1] is not last) or t.stride_order[-1] != 0:
            return False
        expr = self.s.definition(name)
        assert isinstance(expr, Pointwise)
        aliases = {o.tensor.name: o.alias_of.name for o in self.fusion.outputs if o.alias_of is not None}
        for outside in (expr.inputs[0], t):
            given = self.arrays.get(aliases.get(getattr(outside, "name", ""), getattr(outside, "name", "")))
            if given is not None and not _rows(given, 1 if self.misaligned else width):
                return False
        return True

    @staticmethod
    def attempt(verb: Callable[..., object], *arguments: object) -> bool:
        """Apply a verb that the state may not allow."""
        try:
            verb(*arguments)
        except SchedulingError:
            return False
        return True


def generate(seed: int) -> RandomCase:
    """The case of a seed."""
    rng = random.Random(seed)
    maker = _FusionMaker(rng)
    fusion = maker.make()
    scheduler = _Scheduler(rng, fusion, maker.inputs)
    schedule = scheduler.apply()
    facts = collect_facts(fusion, maker.inputs)
    if rng.random() < 0.2 and not scheduler.vectorized:
        facts = frozenset(f for f in sorted(facts, key=repr) if f is NARROW or rng.random() < 0.5)
    return RandomCase(seed, fusion, schedule, maker.inputs, facts)


# --- many kernels in one program ---------------------------------------------------------------------------------------


def one_program(texts: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """(one CUDA text with several generated ones, name expression of each entry): a program costs far more than a kernel in it.

    Each text stands in a namespace of its own, because they define the same device functions.
    """
    text = "\n".join(f"namespace of_{entry} {{\n{text}\n}}" for entry, text in texts.items())
    return text, {entry: f"of_{entry}::{entry}" for entry in texts}


def share_report(counts: Mapping[str, int], accepted: int, total: int, refusals: Mapping[str, int]) -> str:
    """The quotas, one a line, for people."""
    lines = [f"{accepted} of {total} schedules accepted"]
    lines += [f"  {n:28} {counts.get(n, 0) / max(accepted, 1):6.1%}  (at least {q:.0%})" for n, q in QUOTAS.items()]
    worst = sorted(refusals.items(), key=lambda item: -item[1])[:10]
    lines += [f"  refused {count:3}: {reason[:140]}" for reason, count in worst]
    return "\n".join(lines)


def check_shares(counts: Mapping[str, int], accepted: int, total: int) -> None:
    """Assert the quotas."""
    assert accepted >= ACCEPTED * total, f"{accepted} of {total} schedules accepted"
    missed = [n for n, q in QUOTAS.items() if counts.get(n, 0) < q * accepted]
    assert not missed, f"too few cases with {', '.join(missed)}"


# --- replay -----------------------------------------------------------------------------------------------------------


class _Handle:
    """A name in a printed schedule: its calls are verbs of the builder."""

    def __init__(self, builder: ScheduleBuilder, name: str) -> None:
        self._builder = builder
        self._name = name

    def __getattr__(self, verb: str) -> object:
        function = getattr(self._builder, verb)
        return lambda *arguments: function(*((self._name,) if self._name != "schedule" else ()), *arguments)


class _Names(MutableMapping[str, object]):
    def __init__(self, builder: ScheduleBuilder) -> None:
        self.builder = builder

    def __getitem__(self, name: str) -> object:
        return getattr(enums, name, None) or _Handle(self.builder, name)

    def __setitem__(self, name: str, value: object) -> None:
        assert value in (name, None) or isinstance(value, str), (name, value)

    def __delitem__(self, name: str) -> None:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def replay(text: str, fusion: Fusion) -> ScheduleBuilder:
    """Apply a printed schedule to a fusion."""
    builder = ScheduleBuilder(fusion)
    exec(compile(text, "<schedule>", "exec"), {"__builtins__": {}}, _Names(builder))
    return builder


# --- what a case exercises --------------------------------------------------------------------------------------------

QUOTAS = {
    "non-dividing split": 0.30,
    "block or grid reduction": 0.30,
    "rfactor": 0.30,
    "shared cache with inlining": 0.30,
    "vectorize": 0.30,
    "transposed allocation": 0.10,
    "cut vector": 0.01,
    "aligned split": 0.05,
    "unswitch": 0.10,
    "two reductions": 0.10,
    "in-place output": 0.10,
}
"""Least share of the accepted cases."""

ACCEPTED = 0.8


def features(case: RandomCase, kernel: Kernel) -> set[str]:
    """Names of `QUOTAS` that an accepted case really exercises."""
    s = case.schedule
    values = extent_values(case.fusion, case.inputs)
    found: set[str] = set()
    if any(not _divides(a, values) for e in s.exprs for t in tensor_outputs(e) for a in s.state(t.name).loop):
        found.add("non-dividing split")
    for e in s.exprs:
        if isinstance(e, Reduction):
            state = s.state(e.output.name)
            for a in state.loop:
                if a.is_reduction and state.parallel_type(a).is_thread and a.extent.evaluate(values) > 1:
                    found.add("block or grid reduction")
    if any(r.verb == "rfactor" for r in s.records):
        found.add("rfactor")
    made = {r.result for r in s.records if r.verb == "cache_after"}
    if any(s.state(n).memory is MemoryType.shared and s.state(n).inline_at > 0 for n in made if n is not None):
        found.add("shared cache with inlining")
    statements = list(walk(kernel.body))
    if any(isinstance(x, VectorMove) and x.width > 1 for x in statements):
        found.add("vectorize")
    if any(r.verb == "split_aligned" for r in s.records):
        found.add("aligned split")
    two_sides = any(
        isinstance(x, If) and x.orelse and any(isinstance(y, VectorMove) for y in x.then) for x in statements
    )
    if two_sides or any(isinstance(x, VectorMove | AsyncCopy) and x.cut for x in statements):
        found.add("cut vector")
    for r in s.records:
        if r.verb == "set_allocation_domain":
            dims = r.arguments[0]
            assert isinstance(dims, tuple)
            if list(dims) != sorted(dims):
                found.add("transposed allocation")
    if any(isinstance(x, If) and x.role is Role.unswitch for x in statements):
        found.add("unswitch")
    if sum(isinstance(e, Reduction) for e in case.fusion.exprs) >= 2:
        found.add("two reductions")
    if any(o.alias_of is not None for o in case.fusion.outputs):
        found.add("in-place output")
    return found


def _divides(axis: IterDomain, values: dict[Symbol, int]) -> bool:
    match axis.definition:
        case Split() as s:
            extent = s.source.extent.evaluate(values)
            return extent % s.factor.evaluate(values) == 0 and _divides(s.source, values)
        case Merge() as m:
            return _divides(m.outer, values) and _divides(m.inner, values)
        case None:
            return True
