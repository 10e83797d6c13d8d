"""A record of tuning with measured and refused parameters."""

from __future__ import annotations

from dataclasses import replace

from fuser.compiler.kernel_compiler import CompileOptions
from fuser.compiler.tuning_record import (
    Fate,
    Measured,
    SegmentTuning,
    TuningKey,
    TuningRecord,
)
from fuser.ir.device_info import H200
from fuser.schedule.params import PointwiseParams

KEY = TuningKey("1.0", "abc", "t0 Float [8]", CompileOptions(), H200)

PARAMS = PointwiseParams((0,), ((1,),), 4, (("t0", 4),), (256, 1))

FASTER = replace(PARAMS, unroll=2)

SEGMENT = SegmentTuning(
    ("t1",),
    (
        Measured(PARAMS, Fate.measured, "aa", 4.0, 9, ""),
        Measured(FASTER, Fate.measured, "bb", 2.0, 9, ""),
        Measured(PARAMS, Fate.spills, "cc", None, 0, "16 bytes"),
    ),
    1,
)

RECORD = TuningRecord.of(KEY, [SEGMENT])
