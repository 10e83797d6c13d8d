"""`once`: one answer for each fusion and question."""

from fuser.frontend.definition import FusionDefinition
from fuser.ir.dtypes import DataType
from fuser.ir.fusion import Fusion
from fuser.ir.once import once


def _fusion() -> Fusion:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
        fd.add_output(x + 1.0)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def test_a_fusion_is_asked_once_for_each_question_and_argument() -> None:
    asked: list[tuple[int, int]] = []

    @once
    def sized(fusion: Fusion, factor: int = 1, *, more: int = 0) -> int:
        asked.append((factor, more))
        return len(fusion.inputs) * factor + more

    @once
    def other(fusion: Fusion, factor: int = 1) -> int:
        return -factor

    fusion = _fusion()
    assert [sized(fusion), sized(fusion, 2), sized(fusion, 2, more=1), sized(fusion), sized(fusion, 2)] == [
        1,
        2,
        3,
        1,
        2,
    ]
    assert asked == [(1, 0), (2, 0), (2, 1)]
    assert other(fusion, 2) == -2


def test_equal_fusions_answer_with_their_own_tensors() -> None:
    @once
    def result(fusion: Fusion) -> object:
        return fusion.output_tensors[0]

    a, b = _fusion(), _fusion()
    assert a == b
    assert result(a) is a.output_tensors[0]
    assert result(b) is b.output_tensors[0]
