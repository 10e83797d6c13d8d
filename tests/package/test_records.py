"""Records do what `dataclass(frozen=True, slots=True)` does, feature by feature."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any, ClassVar, cast

import pytest

from fuser.records import record


@record
class Point:
    """Two numbers and a list of its own."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list, compare=False)
    note: str = field(default="", repr=False)

    def moved(self, by: int) -> Point:
        return dataclasses.replace(self, x=self.x + by)


@dataclass(frozen=True, slots=True)
class PlainPoint:
    """The same of the standard library."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list, compare=False)
    note: str = field(default="", repr=False)


@record(eq=False)
class Node:
    child: Node | None = None


@record
class Named(Point):
    name: str = "n"
    y: int = 5


@record
class Checked:
    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("negative")


@record
class Compared:
    x: int
    y: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compared) and self.x == other.x

    def __hash__(self) -> int:
        return self.x


def test_made_and_shown_as_a_dataclass() -> None:
    for arguments, named in (((1,), {}), ((1, 3), {}), ((), {"x": 4, "note": "hidden"}), ((1, 2, ["t"]), {})):
        ours, theirs = Point(*arguments, **named), PlainPoint(*arguments, **named)
        assert repr(ours) == repr(theirs).replace("PlainPoint", "Point")
        assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
        assert dataclasses.astuple(ours) == dataclasses.astuple(theirs)
    assert Point(1).tags is not Point(1).tags
    assert [f.name for f in dataclasses.fields(Point)] == [f.name for f in dataclasses.fields(PlainPoint)]
    assert dataclasses.is_dataclass(Point)
    assert Point.__match_args__ == PlainPoint.__match_args__
    assert Point.__doc__ == "Two numbers and a list of its own."
    for wrong in ((), (1, 2, [], "", 5)):
        with pytest.raises(TypeError, match="argument"):
            Point(*wrong)


def test_compared_and_hashed_by_the_fields_that_compare() -> None:
    assert Point(1, tags=["a"]) == Point(1, tags=["b"])
    assert hash(Point(1, tags=["a"])) == hash(Point(1, tags=["b"])) == hash(PlainPoint(1))
    assert Point(1) != Point(2)
    assert Point(1) != PlainPoint(1)
    assert Point(1, note="a") != Point(1)
    assert Node() != Node()
    assert len({Node(), Node()}) == 2
    assert Compared(1, 2) == Compared(1, 3)
    assert hash(Compared(7, 0)) == 7


def test_nothing_is_assigned_or_added() -> None:
    p: Any = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        p.x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del p.x
    with pytest.raises(AttributeError):
        p.z = 3
    assert not hasattr(p, "__dict__")
    assert Point.__slots__ == PlainPoint.__slots__


def test_replaced_copied_and_pickled() -> None:
    assert Point(1, 7).moved(2) == Point(3, 7)
    for again in (
        copy.copy(Point(1, 3, ["t"])),
        copy.deepcopy(Point(1, 3, ["t"])),
        pickle.loads(pickle.dumps(Point(1, 3, ["t"]))),
    ):
        assert again == Point(1, 3)
        assert again.tags == ["t"]


def test_a_record_of_a_record_has_the_fields_of_both() -> None:
    named = Named(1, name="m")
    assert (named.x, named.y, named.name) == (1, 5, "m")
    assert [f.name for f in dataclasses.fields(Named)] == ["x", "y", "tags", "note", "name"]
    assert named != Point(1, 5)
    assert isinstance(dataclasses.replace(named, y=6), Named)
    match named:
        case Named(x, y):
            assert (x, y) == (1, 5)


def test_post_init_runs() -> None:
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_what_a_record_cannot_have() -> None:
    with pytest.raises(TypeError, match="no ClassVar"):

        @record
        class _Kind:
            kind: ClassVar[int] = 1

    with pytest.raises(TypeError, match="_Self: a field of a record is not named self"):

        @record
        class _Self:
            self: int

    with pytest.raises(TypeError, match="would be shared"):

        @record
        class _Shared:
            items: list[int] = []  # noqa: RUF012

    with pytest.raises(TypeError, match="default, compare and repr only"):

        @record
        class _Keyword:
            x: int = field(kw_only=True)

    with pytest.raises(TypeError, match="no record"):

        @record
        class _Mixed(PlainPoint):
            z: int


def test_fields_are_made_once_and_ask_for_no_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object, **__: object) -> None:
        raise AssertionError("a signature takes longer than all the rest of it")

    monkeypatch.setattr(inspect, "signature", asked)

    @record
    class _Undocumented:
        x: int = 1

    fields: Any = dataclasses.fields
    assert fields(_Undocumented)[0] is fields(_Undocumented)[0]
    assert dataclasses.replace(_Undocumented(), x=2) == _Undocumented(2)


def test_as_many_fields_share_code_and_nothing_else() -> None:
    @record
    class _Left:
        a: int
        b: int = 1

    @record
    class _Right:
        x: int = 5
        field0: int = 6

    assert (_Left(3).a, _Left(3).b, _Left(b=4, a=3).b) == (3, 1, 4)
    assert (_Right().x, _Right().field0, _Right(field0=7).field0) == (5, 6, 7)
    assert str(inspect.signature(_Left)) == "(a, b=1)"
    assert str(inspect.signature(_Right)) == "(x=5, field0=6)"
    assert _Left(1, 2) != _Right(1, 2)
    assert hash(_Left(1, 2)) == hash(_Right(1, 2))
    init: Any = _Left.__init__
    assert (init.__qualname__, init.__module__) == (f"{_Left.__qualname__}.__init__", __name__)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        cast("Any", _Left)()


def test_a_default_before_a_field_without_one_is_refused() -> None:
    with pytest.raises(TypeError, match=r"_Behind\.y: a field without a default stands behind one that has one"):

        @record
        class _Behind:
            x: int = 1
            y: int  # pyright: ignore[reportGeneralTypeIssues] - what is refused
