"""`memoized` and `memoized_while_unchanged`: one answer for each fusion, or state of a schedule, and question."""

from fuser.frontend.definition import FusionDefinition
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.fusion.memoized import memoized, memoized_while_unchanged
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder


def _fusion() -> Fusion:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
        fd.add_output(x + 1.0)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def test_a_fusion_is_asked_once_for_each_question_and_argument() -> None:
    asked: list[tuple[int, int]] = []

    @memoized
    def sized(fusion: Fusion, factor: int = 1, *, more: int = 0) -> int:
        asked.append((factor, more))
        return len(fusion.inputs) * factor + more

    @memoized
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
    @memoized
    def result(fusion: Fusion) -> object:
        return fusion.output_tensors[0]

    a, b = _fusion(), _fusion()
    assert a == b
    assert result(a) is a.output_tensors[0]
    assert result(b) is b.output_tensors[0]


def test_a_schedule_is_asked_again_after_a_verb_that_changed_its_exprs() -> None:
    asked: list[int] = []

    @memoized_while_unchanged
    def count(schedule: ScheduleBuilder) -> int:
        asked.append(1)
        return len(schedule.exprs)

    builder = ScheduleBuilder(_fusion())
    before = count(builder)
    builder.split(builder.fusion.output_tensors[0].name, 0, 4)
    assert count(builder) == before
    assert len(asked) == 1
    builder.cache_after(builder.fusion.input_tensors[0].name)
    assert count(builder) == before + 1
    assert len(asked) == 2


def test_a_schedule_is_asked_again_where_other_dims_are_the_same() -> None:
    builder = ScheduleBuilder(_fusion())
    name = builder.fusion.output_tensors[0].name
    builder.cache_before(name)

    @memoized_while_unchanged
    def groups(schedule: ScheduleBuilder) -> frozenset[Group]:
        return frozenset(schedule.graph().group(d) for t in schedule.tensors for d in t.logical)

    before = groups(builder)
    builder.split(name, 0, 4)
    builder.transform_like(name)
    # The graph is another one: groups of the old one are in no set of the new one's.
    assert groups(builder).isdisjoint(before)
    assert groups(builder) == groups(builder)
