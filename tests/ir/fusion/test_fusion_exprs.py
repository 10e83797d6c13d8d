"""What exprs are made of, over replaced tensors."""

from __future__ import annotations

from dataclasses import replace

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion import (
    Broadcast,
    Cat,
    Gather,
    Permute,
    Pointwise,
    Random,
    Reduction,
    Resize,
    Squeeze,
    Welford,
    map_expr,
    tensor_inputs,
    tensor_outputs,
)


def test_an_expr_is_another_only_where_it_has_a_tensor_that_is_replaced() -> None:
    with FusionDefinition() as fd:
        x, index = fd.define_tensor([-1, 1, -1], True), fd.define_tensor([-1], True, DataType.Int)
        seed = fd.define_tensor([], dtype=DataType.Int)
        rows = fd.ops.squeeze(x, [1])
        drawn = fd.ops.uniform(0.0, 1.0, [rows.size(0), rows.size(1)], rng_seed=seed, rng_offset=seed)
        outputs = (
            *fd.ops.var_mean(fd.ops.add(rows, drawn), [1], keepdim=True),
            fd.ops.permute(rows, [1, 0]),
            fd.ops.sum(rows, [0]),
            fd.ops.cat([rows, rows[1:]], 0),
            fd.ops.index_select(rows, index, 0),
        )
        for output in outputs:
            fd.add_output(output)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    kinds = {type(e) for e in fusion.tensor_exprs}
    assert kinds >= {Broadcast, Cat, Gather, Permute, Pointwise, Random, Reduction, Resize, Squeeze, Welford}
    tensors = {t for e in fusion.tensor_exprs for t in (*tensor_inputs(e), *tensor_outputs(e))}
    for e in fusion.tensor_exprs:
        own = {*tensor_inputs(e), *tensor_outputs(e)}
        assert map_expr(e, {t: replace(t) for t in tensors - own}) is e
        for old in own:
            new = replace(old)
            made = map_expr(e, {old: new})
            assert type(made) is type(e)
            assert {*tensor_inputs(made), *tensor_outputs(made)} == own - {old} | {new}
