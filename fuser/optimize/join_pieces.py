"""Read pieces of one tensor that a concatenation puts side by side at once: a roll is one read.

Before: t1 = pad(slice(t0, 3:n), right 3); t2 = pad(slice(t0, 0:3), left n - 3); t3 = cat([t1, t2])
After:  t3 = resize(t0): element i + 3 where i < n - 3, element i + 3 - n from there on

Reads of several pieces would be loads with tests of their own, and a choice between what they give. One read chooses between
indices. Runs before `hoist_displaced_reads`, which would compute each piece of a value by itself.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import Cat, Expr, Fusion, Resize, Scalar, Tensor, Window
from fuser.ir.integers.integers import ZERO, Int, maximum, prove_less_equal
from fuser.optimize.remove_dead_code import remove_dead_code


def join_pieces(fusion: Fusion) -> Fusion:
    """The same values, with a Resize in place of each Cat whose parts are windows of one tensor, moved along its dim alone."""
    reads: dict[Tensor, Resize] = {}
    exprs: list[Expr] = []
    changed = False
    for expr in fusion.exprs:
        joined = _joined(expr, reads) if isinstance(expr, Cat) else None
        changed = changed or joined is not None
        made = joined or expr
        if isinstance(made, Resize):
            reads[made.output] = _composed(made, reads)
        exprs.append(made)
    if not changed:
        return fusion
    return remove_dead_code(
        Fusion(fusion.inputs, tuple(exprs), fusion.outputs, fusion.constraints, fusion.extent_scalars)
    )


def _composed(expr: Resize, reads: dict[Tensor, Resize]) -> Resize:
    """The same of what its operand is a part of."""
    inner = reads.get(expr.input)
    if inner is None or inner.fill is not None:
        return expr
    windows = [a.of(b) for a, b in zip(expr.windows, inner.windows, strict=True)]
    known = tuple(w for w in windows if w is not None)
    return Resize(inner.input, expr.output, known, expr.fill) if len(known) == len(windows) else expr


def _joined(expr: Cat, reads: dict[Tensor, Resize]) -> Resize | None:
    """The read of all parts of a Cat; None where they are not pieces of one tensor that meet."""
    parts = [reads.get(t) for t in expr.inputs]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts) or len({p.input for p in known}) > 1 or not _has_one_fill(known):
        return None
    first, output = known[0], expr.output
    if any(d.extent is not e.extent for p in known for d, e in zip(p.output.visible, output.visible, strict=True)):
        return None
    for d, window in enumerate(first.windows):
        if d != expr.dim and any(_differ(window, p.windows[d]) for p in known[1:]):
            return None
    window = _along([p.windows[expr.dim] for p in known], expr.bounds, output.visible[expr.dim].extent)
    if window is None:
        return None
    windows = tuple(window if d == expr.dim else w for d, w in enumerate(first.windows))
    spans = all(w.begin is ZERO and w.end is d.extent for w, d in zip(windows, output.visible, strict=True))
    fill = None if spans else next((p.fill for p in known if p.fill is not None), None)
    return Resize(first.input, output, windows, fill)


def _has_one_fill(parts: list[Resize]) -> bool:
    """Whether what surrounds the windows is one number, wherever it is seen."""
    fills: list[Scalar] = [p.fill for p in parts if p.fill is not None]
    return all(f is fills[0] or (f.value is not None and repr(f.value) == repr(fills[0].value)) for f in fills)


def _differ(a: Window, b: Window) -> bool:
    return (a.seams, a.step) != (b.seams, b.step)


def _along(windows: list[Window], bounds: tuple[Int, ...], extent: Int) -> Window | None:
    """The window of all parts along the dim of a Cat; None where a part is filled elsewhere than at both ends of them all."""
    pieces: list[tuple[Int, Int]] = []
    if any(w.step != 1 for w in windows):
        return None
    for k, window in enumerate(windows):
        if k and not prove_less_equal(window.begin, bounds[k - 1]):
            return None
        if k < len(bounds) and not prove_less_equal(bounds[k], window.end):
            return None
        before = pieces[-1][1] if pieces else windows[0].offset
        if k and window.offset is not before:
            pieces.append((bounds[k - 1], window.offset))
        # Pieces of a part hold from its first element on.
        pieces += [(maximum(at, bounds[k - 1]) if k else at, offset) for at, offset in window.pieces]
    begin, end = windows[0].begin, windows[-1].end
    # Where a part is empty, its end of the window lies where another part is.
    if begin is not ZERO and not prove_less_equal(begin, bounds[0]):
        return None
    if end is not extent and not prove_less_equal(bounds[-1], end):
        return None
    return Window(windows[0].offset, begin, end, tuple(pieces))
