"""Verbs that make tensors: caches, second computations, the stages of a reduction.

Each makes a tensor whose loop domain has the same transforms over dims of its own, puts an expr for it in its place and
returns its stable name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fuser.errors import NotSupportedError, SchedulingError
from fuser.ir.fusion.fusion import (
    ExpSum,
    IterDomain,
    IterKind,
    Pointwise,
    Reducing,
    Reduction,
    Reshape,
    Resize,
    Split,
    Tensor,
    TensorExpr,
    Welford,
    map_expr,
    memory_order,
    row_major_order,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.ops.dtypes import compute_dtype
from fuser.ir.ops.enums import CacheOp, LoadStoreOpType, MemoryType
from fuser.ir.schedule.scheduled_fusion import Record, ScheduledFusion, TensorState, merge_axes, split_axis


class TensorVerbs(ScheduledFusion):
    """Tensors made by verbs."""

    @staticmethod
    def _clone_axes(
        axes: Iterable[IterDomain], leaves: dict[IterDomain, IterDomain]
    ) -> tuple[list[IterDomain], dict[IterDomain, IterDomain]]:
        """The same transforms over replaced dims; `leaves` maps dims to their clones and grows with the axes made."""

        def clone(axis: IterDomain) -> IterDomain:
            known = leaves.get(axis)
            if known is not None:
                return known
            t = axis.definition
            if t is None:  # an extra broadcast axis
                leaves[axis] = IterDomain(axis.name, axis.extent, axis.kind)
            elif isinstance(t, Split):
                made = split_axis(clone(t.source), t.factor, t.inner_split, t.aligned)
                leaves[t.outer], leaves[t.inner] = made.outer, made.inner
                # rfactor made some pieces of a reduced dim iterated ones.
                for old, new in ((t.outer, made.outer), (t.inner, made.inner)):
                    new.kind = old.kind if old.kind is not t.source.kind else new.kind
            else:
                made_by = merge_axes(clone(t.outer), clone(t.inner))
                leaves[axis] = made_by.result
                if t.outer.is_reduction and not axis.is_reduction:
                    made_by.result.kind = axis.kind
            return leaves[axis]

        return [clone(a) for a in axes], leaves

    def _copy_dims(self, name: str, dims: Sequence[IterDomain], *, keep_reduction: bool) -> tuple[IterDomain, ...]:
        return tuple(
            IterDomain(
                f"{name}.{i}",
                d.extent,
                d.kind if keep_reduction or not d.is_reduction else IterKind.iteration,
                d.expanded,
            )
            for i, d in enumerate(dims)
        )

    def _add_state(
        self, tensor: Tensor, loop: list[IterDomain], source: TensorState, leaves: dict[IterDomain, IterDomain]
    ) -> TensorState:
        state = TensorState(tensor, loop, MemoryType.local)
        for axis, parallel_type in source.parallel.items():
            if axis in leaves and leaves[axis] in loop:
                state.parallel[leaves[axis]] = parallel_type
        state.extras = [(leaves[a], target) for a, target in source.extras if a in leaves]
        self.states[tensor.name] = state
        self._regroup()
        return state

    def cache_after(
        self,
        name: str,
        op_type: LoadStoreOpType = LoadStoreOpType.set,
        cache_op: CacheOp = CacheOp.unspecified,
        propagate_allocation_domain: bool = True,
        cached_uses: Sequence[TensorExpr | str] = (),
    ) -> str:
        """A copy of the tensor consumed by all (or the listed) uses; returns the copy's name.

        `op_type` cp_async: the copy lives in shared memory, and is filled while its threads go on, in accesses of 4, 8 or 16
        bytes. `cached_uses`: exprs that use the tensor, or names of their results.
        """
        state = self.state(name)
        tensor = state.tensor
        if op_type not in (LoadStoreOpType.set, LoadStoreOpType.cp_async):
            raise NotSupportedError(f"LoadStoreOpType.{op_type.name} is not supported yet")
        if op_type is LoadStoreOpType.cp_async and name not in self.input_names:
            raise SchedulingError(f"cannot copy {name} asynchronously: it is no input in device memory")
        uses = self.uses(name)
        if not uses:
            raise SchedulingError(f"cannot cache {name}: nothing uses it")
        if state.inline_at:
            raise SchedulingError(f"cannot cache {name}: it is already inlined")
        chosen = uses
        if cached_uses:
            wanted = {u if isinstance(u, str) else tensor_outputs(u)[0].name for u in cached_uses}
            chosen = [e for e in uses if any(t.name in wanted for t in tensor_outputs(e))]
            if len(chosen) != len(wanted):
                raise SchedulingError(f"cannot cache {name}: a listed use is not among its uses")
        result = self.new_name(name, "cache_after")
        logical = self._copy_dims(result, tensor.visible, keep_reduction=False)
        order = tensor.stride_order if propagate_allocation_domain else row_major_order(len(logical))
        dense = tuple(None if logical[d].is_broadcast else True for d in memory_order(order))
        copy = Tensor(result, tensor.dtype, logical, order, dense, location=tensor.location)
        axes, leaves = self._clone_axes(
            [a for a in state.loop if not a.is_reduction], dict(zip(tensor.visible, logical, strict=True))
        )
        new = self._add_state(copy, axes, state, leaves)
        new.cache_op, new.op_type = cache_op, op_type
        if op_type is LoadStoreOpType.cp_async:
            new.memory = MemoryType.shared
        chosen_ids = set(map(id, chosen))
        first = next(i for i, e in enumerate(self.exprs) if id(e) in chosen_ids)
        self.exprs = [map_expr(e, {tensor: copy}) if id(e) in chosen_ids else e for e in self.exprs]
        made = next((i + 1 for i, e in enumerate(self.exprs) if tensor in tensor_outputs(e)), 0)
        self._splice(min(made, first) if made == 0 else made, [Pointwise("set", (tensor,), copy)], 0)
        self.records.append(
            Record(
                "cache_after",
                name,
                (
                    op_type,
                    cache_op,
                    propagate_allocation_domain,
                    tuple(tensor_outputs(e)[0].name for e in chosen) if cached_uses else (),
                ),
                result,
            )
        )
        return result

    def cache_before(self, name: str, op_type: LoadStoreOpType = LoadStoreOpType.set, move_uses: bool = False) -> str:
        """A new tensor computes what this one did, and this one becomes a copy of it; returns the new tensor's name.

        With `move_uses`, what read this tensor reads the new one: nobody then waits for what is written to memory.
        """
        if op_type is not LoadStoreOpType.set:
            raise NotSupportedError(f"LoadStoreOpType.{op_type.name} is not supported yet")
        state = self.state(name)
        expr = self.definition(name)
        if expr is None:
            raise SchedulingError(f"cannot cache_before {name}: it is a fusion input")
        if state.inline_at:
            raise SchedulingError(f"cannot cache_before {name}: it is already inlined")
        tensor = state.tensor
        result = self.new_name(name, "cache_before")
        produced = self._copy_dims(result, tensor.produced, keep_reduction=True)
        leaves = dict(zip(tensor.produced, produced, strict=True))
        logical = tuple(self._clone_axes(tensor.logical, leaves)[0]) if tensor.root is not None else produced
        before = Tensor(
            result,
            tensor.dtype,
            logical,
            row_major_order(tensor.ndim),
            tuple(True for _ in tensor.visible),
            produced if tensor.root is not None else None,
            location=tensor.location,
        )
        axes, leaves = self._clone_axes(state.loop, leaves)
        self._add_state(before, axes, state, leaves)
        shown = tensor.visible
        if isinstance(expr, (Reshape, Resize)) and tensor.root is not None:
            # What is made of the dims of the operand is the new tensor: this one only has its dims.
            shown = self._copy_dims(name, shown, keep_reduction=False)
            loop, made = self._clone_axes(state.loop, dict(zip(tensor.visible, shown, strict=True)))
            state.parallel = {made[a]: p for a, p in state.parallel.items()}
            state.loop = loop
        after = Tensor(
            name,
            tensor.dtype,
            shown,
            tensor.stride_order,
            tensor.contiguity,
            None,
            tensor.is_cpu,
            tensor.location,
        )
        at = self.exprs.index(expr)
        self._splice(at, [map_expr(expr, {tensor: before}), Pointwise("set", (before,), tensor)])
        self._note_siblings(self.exprs[at])
        if name in self._siblings:
            rest = tuple(n for n in self._siblings.pop(name) if n != name)
            for n in rest:
                self._siblings[n] = self._siblings[result]
        self._replace_tensor(tensor, after)
        if move_uses:
            self.exprs = [map_expr(e, {after: before}) if after in tensor_inputs(e) else e for e in self.exprs]
        state.loop = [a for a in state.loop if not a.is_reduction]
        state.parallel = {a: p for a, p in state.parallel.items() if a in state.loop}
        state.op_type = op_type
        self.records.append(Record("cache_before", name, (op_type, True) if move_uses else (op_type,), result))
        return result

    def recompute(self, name: str, uses: Sequence[TensorExpr | str]) -> str:
        """A second computation of the tensor for the listed uses; returns its name.

        Trades arithmetic for memory: a value that two loop nests need is computed in each instead of being kept.
        """
        state = self.state(name)
        expr = self.definition(name)
        if expr is None or len(self.siblings(name)) > 1 or isinstance(expr, Reduction):
            raise SchedulingError(f"cannot recompute {name}: it is an input or the result of a reduction")
        if state.inline_at:
            raise SchedulingError(f"cannot recompute {name}: it is already inlined")
        tensor = state.tensor
        wanted = {u if isinstance(u, str) else tensor_outputs(u)[0].name for u in uses}
        chosen = [e for e in self.uses(name) if any(t.name in wanted for t in tensor_outputs(e))]
        if len(chosen) != len(wanted):
            raise SchedulingError(f"cannot recompute {name}: a listed use is not among its uses")
        result = self.new_name(name, "recompute")
        produced = self._copy_dims(result, tensor.produced, keep_reduction=True)
        leaves = dict(zip(tensor.produced, produced, strict=True))
        logical = tuple(self._clone_axes(tensor.logical, leaves)[0])
        self.recomputed += zip(tensor.produced, produced, strict=True)
        order = row_major_order(len(logical))
        dense = tuple(None if d.is_broadcast else True for d in logical)
        root = produced if tensor.root is not None else None
        copy = Tensor(result, tensor.dtype, logical, order, dense, root, location=tensor.location)
        axes, leaves = self._clone_axes(state.loop, leaves)
        new = self._add_state(copy, axes, state, leaves)
        new.cache_op, new.op_type = state.cache_op, state.op_type
        chosen_ids = set(map(id, chosen))
        at = self.exprs.index(expr)
        self.exprs = [map_expr(e, {tensor: copy}) if id(e) in chosen_ids else e for e in self.exprs]
        self._splice(at + 1, [map_expr(expr, {tensor: copy})], 0)
        self.records.append(Record("recompute", name, (tuple(sorted(wanted)),), result))
        return result

    def two_pass(self, name: str) -> None:
        """Compute the results of the Welford or ExpSum of which `name` is one by simple reductions (two_pass.py)."""
        from fuser.ir.schedule.two_pass import two_pass_exp_sum, two_pass_welford

        rewrite = two_pass_exp_sum if isinstance(self.definition(name), ExpSum) else two_pass_welford
        rewrite(self, name)
        self.records.append(Record("two_pass", name, ()))

    def rfactor(self, name: str, axes: Sequence[int]) -> str | tuple[str, ...]:
        """A new producer reduces exactly `axes`; the tensor reduces the remaining reduction axes over it.

        Returns the producer's name; for a Welford result the names of the triple.
        """
        state = self.state(name)
        expr = self.definition(name)
        if not isinstance(expr, Reducing):
            raise SchedulingError(f"cannot rfactor {name}: it is not produced by a reduction")
        if state.inline_at:
            raise SchedulingError(f"cannot rfactor {name}: it is already inlined")
        positions = sorted(self._axis_position(state, a) for a in axes)
        if not positions or len(set(positions)) != len(positions):
            raise SchedulingError(f"cannot rfactor {name} over axes {list(axes)}")
        for p in positions:
            if not state.loop[p].is_reduction:
                raise SchedulingError(f"cannot rfactor axis {p} of {name}: it is not a reduction axis")
        kept = [p for p, a in enumerate(state.loop) if a.is_reduction and p not in positions]
        if not kept:
            raise SchedulingError(f"cannot rfactor all reduction axes of {name}: at least one must remain")
        pieces = not {state.loop[p] for p in kept} <= set(state.tensor.produced)
        stages = [self._rfactor_one(self.state(s), positions, kept) for s in self.siblings(name)]
        firsts = [first for first, _ in stages]
        replaced = [(self.state(n).tensor, second) for n, (_, second) in zip(self.siblings(name), stages, strict=True)]
        at = self.exprs.index(expr)
        if isinstance(expr, Welford):
            mean, m2, count = firsts
            new_mean, new_m2, new_count = (second for _, second in stages)
            before: TensorExpr = Welford(expr.input, mean, m2, count, expr.partial)
            after: TensorExpr = Welford(mean, new_mean, new_m2, new_count, (m2, count))
        elif isinstance(expr, ExpSum):
            (largest, total), (new_largest, new_total) = firsts, (second for _, second in stages)
            before = ExpSum(expr.input, largest, total, expr.op, expr.partial)
            after = ExpSum(largest, new_largest, new_total, expr.op, total)
        else:
            before = Reduction(expr.op, expr.input, firsts[0])
            after = Reduction(expr.op, firsts[0], stages[0][1])
        self._splice(at, [before, after])
        self._note_siblings(before)
        for old, new in replaced:
            self._replace_tensor(old, new)
        names = tuple(t.name for t in firsts)
        if pieces:
            self.partial_results.update(names)
        self.records.append(Record("rfactor", name, (tuple(positions),), ", ".join(names)))
        return names[0] if len(names) == 1 else names

    def _rfactor_one(self, state: TensorState, positions: Sequence[int], kept: Sequence[int]) -> tuple[Tensor, Tensor]:
        """(first stage, second stage) of one reduction result; registers the first, updates the loops of the second."""
        tensor = state.tensor
        name = self.new_name(tensor.name, "rfactor")
        reduced = {state.loop[p] for p in positions}
        root = self._copy_dims(name, tensor.produced, keep_reduction=True)
        leaves = dict(zip(tensor.produced, root, strict=True))
        loop, leaves = self._clone_axes(state.loop, leaves)
        for old, new in zip(state.loop, loop, strict=True):
            if new.is_reduction and old not in reduced:
                new.kind = IterKind.iteration
        pieces = [leaves[a] for a in state.loop if a.is_reduction]
        iterated = [leaves[d] for d in tensor.visible]
        # What the result reduced is found in the first stage from now on.
        for s in self.states.values():
            s.extras = [(extra, leaves.get(followed, followed)) for extra, followed in s.extras]
        # A partial result is not rounded: only the last stage's is.
        dtype = compute_dtype(tensor.dtype) if tensor.dtype.is_reduced_float else tensor.dtype
        first = Tensor(
            name,
            dtype,
            (*iterated, *pieces),
            row_major_order(len(iterated) + len(kept)),
            tuple(True for _ in range(len(iterated) + len(kept))),
            root,
            location=tensor.location,
        )
        self._add_state(first, loop, state, leaves)
        remaining = {
            p: IterDomain(f"{tensor.name}.{tensor.ndim + i}", state.loop[p].extent, IterKind.reduction)
            for i, p in enumerate(kept)
        }
        second = Tensor(
            tensor.name,
            tensor.dtype,
            (*tensor.visible, *remaining.values()),
            tensor.stride_order,
            tensor.contiguity,
            None,
            tensor.is_cpu,
            tensor.location,
        )
        for p, d in remaining.items():
            if state.loop[p] in state.parallel:
                state.parallel[d] = state.parallel.pop(state.loop[p])
        for p in positions:
            state.parallel.pop(state.loop[p], None)
        state.loop = [remaining.get(p, a) for p, a in enumerate(state.loop) if p not in positions]
        return first, second
