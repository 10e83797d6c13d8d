"""Random definitions run and compared with the reference, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.runtime.devices.device import Device
from tests.devices.device_layouts import place_all
from tests.fusions.fusion_corpus import expected
from tests.fuzzing.random_fusions import RandomFusion


def check(made: RandomFusion, device: Device) -> dict[str, int]:
    """Execute twice and compare bit for bit; the program's counters."""
    fd, fusion = made.fd, made.fd.fusion
    assert fusion is not None
    ir = fusion.ir_fusion
    what = f"seed {made.seed}\n{fd!r}"
    for _ in range(2):
        want = expected(ir, made.inputs)
        placed = place_all(device, made.inputs)
        results = fd.execute(placed)
        assert len(results) == len(want.outputs), what
        shown = _shared(ir, want.updates)
        for i, (out, ref) in enumerate(zip(results, want.outputs, strict=True)):
            if i not in shown:
                np.testing.assert_array_equal(np.asarray(out), ref, err_msg=f"output {i}, {what}")
        for position, value in enumerate(made.inputs):
            np.testing.assert_array_equal(
                placed[position].numpy(), want.updates.get(position, value), err_msg=f"input {position}, {what}"
            )
    program = fd.program(place_all(device, made.inputs))
    return program.counters()


def _shared(ir: Any, updates: dict[int, Any]) -> set[int]:
    """Positions of outputs that are updated inputs themselves: they show the new values."""
    shown = [o for o in ir.outputs if not o.hidden]
    targets = [ir.inputs[p] for p in updates]
    return {i for i, o in enumerate(shown) if o.tensor in targets or o.alias_of is not None}
