"""Names and values that an enumeration does not have: which was meant."""

from __future__ import annotations

import copy
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, MemoryType, ParallelType, SchedulerType
from fuser.errors import DefinitionAttributeError, DefinitionKeyError, DefinitionValueError, FuserError

TYPES = f"; they are {', '.join(DataType.__members__)}"

MISTAKES: list[tuple[Callable[[], Any], type[FuserError], str]] = [
    (lambda: DataType("Float"), DefinitionValueError, "'Float' is no value of DataType; write DataType.Float"),
    (
        lambda: DataType("float32"),
        DefinitionValueError,
        "'float32' is no value of DataType; did you mean DataType.Float?",
    ),
    (
        lambda: DataType(np.float16),
        DefinitionValueError,
        f"{np.float16!r} is no value of DataType; did you mean DataType.Half?",
    ),
    (lambda: DataType(99), DefinitionValueError, f"99 is no value of DataType{TYPES}"),
    (lambda: DataType["float32"], DefinitionKeyError, "DataType has no member 'float32'; did you mean DataType.Float?"),
    (lambda: DataType["Tensor"], DefinitionKeyError, f"DataType has no member 'Tensor'{TYPES}"),
    (lambda: DataType[1], DefinitionKeyError, f"DataType has no member 1{TYPES}"),  # type: ignore[misc]
    *(
        (lambda name=name: getattr(DataType, name), DefinitionAttributeError, f"DataType has no member {name!r}{meant}")
        for name, meant in (
            ("Float32", "; did you mean DataType.Float?"),
            ("float16", "; did you mean DataType.Half?"),
            ("BFLOAT16", "; did you mean DataType.BFloat16?"),
            ("int64", "; did you mean DataType.Int?"),
            ("bf16", "; did you mean DataType.BFloat16?"),
            ("FP16", "; did you mean DataType.Half?"),
            ("Tensor", TYPES),
        )
    ),
    (
        lambda: DataType.float,  # type: ignore[attr-defined]
        DefinitionAttributeError,
        "DataType has no member 'float'; did you mean DataType.Float?",
    ),
    (
        lambda: ParallelType("block_x"),
        DefinitionValueError,
        "'block_x' is no value of ParallelType; write ParallelType.block_x",
    ),
    *(
        (
            lambda name=name: ParallelType[name],
            DefinitionKeyError,
            f"ParallelType has no member {name!r}; did you mean {meant!r}?",
        )
        for name, meant in (
            ("threadIdx.x", ParallelType.block_x),
            ("TIDy", ParallelType.block_y),
            ("blockIdx_z", ParallelType.grid_z),
        )
    ),
    (
        lambda: ParallelType["BlockX"],
        DefinitionKeyError,
        "ParallelType has no member 'BlockX'; did you mean ParallelType.block_x?",
    ),
    (
        lambda: SchedulerType.pointwize,  # type: ignore[attr-defined]
        DefinitionAttributeError,
        "SchedulerType has no member 'pointwize'; did you mean SchedulerType.pointwise?",
    ),
    (
        lambda: MemoryType("global"),
        DefinitionValueError,
        "'global' is no value of MemoryType; write MemoryType['global']",
    ),
]


@pytest.mark.parametrize(("mistake", "kind", "text"), MISTAKES, ids=[text[:24] for _, _, text in MISTAKES])
def test_mistakes(
    mistake: Callable[[], Any], kind: type[FuserError], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FUSER_TRACEBACK", raising=False)
    with pytest.raises(FuserError) as caught:
        mistake()
    assert type(caught.value) is kind
    assert caught.value.message == text
    assert caught.value.location is not None
    assert {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)} == {__file__}


def test_members_are_found_as_ever() -> None:
    assert DataType(1) is DataType["Float"] is DataType.Float
    assert DataType(DataType.Half) is DataType.Half
    assert pickle.loads(pickle.dumps(ParallelType.block_x)) is copy.deepcopy(ParallelType.block_x)
    assert not hasattr(ParallelType, "_private")
