"""Things that have nothing to do with each other are taken apart, and none is computed twice but what is cheap."""

from __future__ import annotations

from typing import Any

from fuser import FusionDefinition
from fuser.ir.fusion import Fusion, LibraryOp
from fuser.optimize.pipeline import optimize_fusion
from fuser.schedule.segment import segment_fusion
from fuser.schedule.separate_lots import separate_lots


def defined(fd: FusionDefinition) -> Fusion:
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def outputs(fusion: Fusion, *, recomputing: bool) -> list[list[str]]:
    return [[t.name for t in lot.output_tensors] for lot in separate_lots(fusion, recomputing=recomputing)]


def test_one_piece_stays_one() -> None:
    with FusionDefinition() as fd:
        x = fd.ops.exp(fd.define_tensor([-1]))
        fd.add_output(fd.ops.neg(x))
        fd.add_output(fd.ops.sum(x, dims=[0]))
    fusion = defined(fd)
    assert separate_lots(fusion, recomputing=True) == [fusion]


def test_pieces_in_the_order_of_their_outputs() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
        a, b, c = fd.ops.exp(x), fd.ops.exp(y), fd.ops.neg(x)
        d = fd.ops.tanh(b)
        for t in (a, b, c, d):
            fd.add_output(t)
    names = [t.node.name for t in (a, b, c, d)]
    assert outputs(defined(fd), recomputing=False) == [[names[0]], [names[1], names[3]], [names[2]]]


def test_what_is_cheap_beside_the_results_parts_them_all_the_same() -> None:
    with FusionDefinition() as fd:
        x, y, v = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1]), fd.define_tensor([-1])
        row = fd.ops.broadcast(fd.ops.cos(v), [True, False])
        fd.add_output(fd.ops.mul(x, row))
        fd.add_output(fd.ops.add(y, row))
    fusion = defined(fd)
    assert len(separate_lots(fusion, recomputing=True)) == 2
    assert len(separate_lots(fusion, recomputing=False)) == 1


def test_what_is_as_large_as_the_results_keeps_them_together() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        shared = fd.ops.cos(x)
        fd.add_output(fd.ops.mul(x, shared))
        fd.add_output(fd.ops.add(y, shared))
    assert len(separate_lots(defined(fd), recomputing=True)) == 1


def rotated(fd: FusionDefinition, x: Any, c: Any) -> Any:
    """The halves of rows turned: a kernel, but cut anywhere in the middle it is many."""
    ops = fd.ops
    a, b = ops.slice(x, [0, 0], [4, 4]), ops.slice(x, [0, 4], [4, 8])
    return ops.cat([ops.sub(ops.mul(a, c), b), ops.add(ops.mul(b, c), a)], dim=1)


def test_two_rotations_between_calls_are_two_kernels() -> None:
    with FusionDefinition() as fd:
        x, v, w = fd.define_tensor([4, 8]), fd.define_tensor([4]), fd.define_tensor([8, 8])
        c = fd.ops.broadcast(fd.ops.cos(v), [True, False])
        q, k = (rotated(fd, fd.ops.matmul(x, m), c) for m in (w, fd.ops.neg(w)))
        fd.add_output(fd.ops.matmul(q, fd.ops.permute(k, [1, 0])))
    segments = segment_fusion(optimize_fusion(defined(fd), lambda name, text: None)).segments
    kinds = ["call" if s.call is not None else "kernel" if s.has_kernel else "views" for s in segments]
    assert kinds.count("call") == 3
    assert kinds.count("kernel") == 3  # what is negated, and the rotations
    assert [e.op for s in segments for e in s.fusion.tensor_exprs if isinstance(e, LibraryOp)] == ["matmul"] * 3
