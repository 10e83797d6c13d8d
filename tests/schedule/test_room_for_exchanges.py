"""What schedules leave for exchanges is what lowering and code generation take."""

from __future__ import annotations

import re

from fuser.codegen.exponentials import EXP_TABLE, EXPONENTIALS
from fuser.lowering.allocate_shared import PLENTY
from fuser.schedule.room_for_exchanges import EXCHANGES


def test_small_buffers_have_room() -> None:
    assert EXCHANGES >= PLENTY


def test_maxima_and_sums_of_warps_have_room_beside_the_table() -> None:
    words = re.search(r"unsigned \w+\[(\d+)\]", EXPONENTIALS[EXP_TABLE])
    assert words is not None
    table = 4 * int(words.group(1))
    warps, results, of_double = 32, 2, 8
    assert table + warps * results * of_double <= EXCHANGES
