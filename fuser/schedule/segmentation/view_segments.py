"""Views that need no kernel: of inputs, before all kernels, and of results, after all kernels."""

from __future__ import annotations

from fuser.ir.fusion.fusion import (
    ExtentOp,
    Fusion,
    Output,
    Reshape,
    ScalarOp,
    Squeeze,
    Tensor,
    TensorExpr,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.live_order import exprs_below
from fuser.ir.fusion.views import ViewExpr, view_chain
from fuser.schedule.schedulers.no_op import view_source
from fuser.schedule.segmentation.segment import Segment, accepted_segment


def views_of_inputs(fusion: Fusion) -> frozenset[Tensor]:
    """What reshapes of inputs give, and what those reshape."""
    found: set[Tensor] = set()
    for e in fusion.tensor_exprs:
        chain = view_chain(fusion, e.output, fusion.input_tensors.__contains__) if isinstance(e, Reshape) else None
        if chain is not None and not chain[0].is_cpu:
            found.update(view.output for view in chain[1])
    return frozenset(found)


def views_of_results(fusion: Fusion) -> list[TensorExpr]:
    """Reshapes, and views around them, that only outputs are made of: they come after every kernel."""
    first = views_of_inputs(fusion)
    found: set[TensorExpr] = set()
    for t in fusion.output_tensors if any(isinstance(e, Reshape) for e in fusion.tensor_exprs) else ():
        chain = view_chain(fusion, t, lambda t: not isinstance(fusion.definitions.get(t), ViewExpr))
        exprs = chain[1] if chain is not None else []
        start = next((i for i, e in enumerate(exprs) if isinstance(e, Reshape) and e.output not in first), len(exprs))
        # What has the memory order of the output is computed: views before that are part of it.
        follows = 0 < start < len(exprs) and isinstance(exprs[start - 1], Squeeze)
        found.update(exprs[start - follows :])
    for e in reversed(fusion.tensor_exprs):
        found -= {fusion.definitions[t] for t in tensor_inputs(e) if e not in found and t in fusion.definitions}
    return [e for e in fusion.tensor_exprs if e in found]


def returned_views(fusion: Fusion) -> frozenset[Tensor]:
    """Outputs that are views of inputs, where there are others that are not."""
    updating = {o.tensor for o in fusion.outputs if o.alias_of is not None}
    shown = {t for t in fusion.output_tensors if t not in updating and t not in fusion.input_tensors}
    views = frozenset(t for t in shown if view_source(fusion, t) is not None)
    return views if updating or views != shown else frozenset()


def view_segment(fusion: Fusion, views: frozenset[Tensor]) -> Segment:
    """Views of inputs that are returned or read by kernels, and that no kernel has to make."""
    made = (t for e in fusion.tensor_exprs for t in tensor_outputs(e))
    exprs = [
        e
        for e in exprs_below(filter(views.__contains__, made), fusion.definitions)
        if not isinstance(e, (ScalarOp, ExtentOp))
    ]
    inputs = tuple(t for t in fusion.input_tensors if any(t in tensor_inputs(e) for e in exprs))
    read = {t for e in fusion.tensor_exprs if views.isdisjoint(tensor_outputs(e)) for t in tensor_inputs(e)}
    outputs = [Output(t) for t in fusion.output_tensors if t in views]
    outputs += [Output(t) for e in exprs for t in tensor_outputs(e) if t in views and t in read]
    part = Fusion(inputs, tuple(exprs), tuple(dict.fromkeys(outputs)), (), {})
    segment = accepted_segment(part, ())
    assert segment is not None
    return segment
