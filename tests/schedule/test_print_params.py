"""Text of parameters: it makes them again, and leaves out what was not chosen."""

from __future__ import annotations

import pytest

from fuser.schedule import params as classes
from fuser.schedule.params import InnerPersistentParams, NoOpParams, Params, PointwiseParams, ReductionParams
from fuser.schedule.print_params import params_line, params_text

CHOSEN: tuple[Params, ...] = (
    NoOpParams(),
    PointwiseParams((1, 0), ((1,), (1,)), 4, (("t0", 4),), (32, 4), unroll=2, reasons=("one", "it's two")),
    ReductionParams((0, 1), True, 128, 1, 4, ("t0",), 8, cluster=True),
    InnerPersistentParams((0, 1), 256, 1, 2, 8, ("t0",), (), reasons=("a row fits",)),
)


@pytest.mark.parametrize("params", CHOSEN, ids=lambda p: type(p).__name__)
def test_text_makes_the_parameters_again(params: Params) -> None:
    for text in (params_text(params), params_line(params)):
        again = eval(text, dict(vars(classes)))
        assert again == params
        assert getattr(again, "reasons", ()) == getattr(params, "reasons", ())


def test_what_is_as_ever_is_left_out() -> None:
    assert params_text(CHOSEN[1]) == (
        "PointwiseParams(\n"
        "    order=(1, 0),\n"
        "    merged_dims=((1,), (1,)),\n"
        "    vector=4,\n"
        "    vector_widths=(('t0', 4),),\n"
        "    block_shape=(32, 4),\n"
        "    unroll=2,\n"
        "    reasons=(\n"
        "        'one',\n"
        '        "it\'s two",\n'
        "    ),\n"
        ")"
    )
    assert params_text(NoOpParams()) == params_line(NoOpParams()) == "NoOpParams()"
    assert params_line(CHOSEN[2]).endswith("vectorized=('t0',), grid_reduce=8, cluster=True)")
