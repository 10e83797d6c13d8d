"""Records as bytes and back, and everything that is no such file."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import pytest

from fuser.ir.integers.integers import less, maximum, select, symbol
from fuser.ir.record_files import ByHand, RecordFile, UnreadableError, class_name
from fuser.records import record


class Colour(Enum):
    red = 1
    blue = 2


class Place(NamedTuple):
    line: int
    name: str


@record
class Leaf:
    value: object
    extra: object = None


@record(eq=False)
class Node:
    """Compares by identity."""

    left: object
    right: object


@dataclass(frozen=True)
class Plain:
    value: object


class Odd:
    def __init__(self, first: int) -> None:
        self.kept = [first]


CLASSES = (Colour, Place, Leaf, Node, Plain)
FILE = RecordFile("test", 3, CLASSES, {Odd: ByHand(("first",), lambda odd: odd.kept, Odd)})

x, n = symbol("x", None), symbol("n", 8, multiple=8)
i = symbol("i", below=n // 8)
VALUES: dict[str, object] = {
    "plain": (None, True, False, 0, -7, 2**80, "", "text \u00e9\n\ud800", 0.1, -0.0, math.inf, 1e-320),
    "containers": ((), ((),), {"a": (1, 2), 3: {}}, frozenset({"a"}), frozenset(), b"", b"\0\xff" * 9, 1 - 2j),
    "classes": (Colour.blue, Place(3, "f"), Leaf(Leaf(1), extra=(2.0,)), Plain({"k": Colour.red})),
    "integers": (x, n, n // 8, i, x // 3 + x % 5 * n - 2, maximum(x, i), select(less(x, n), x, i), less(i, 3)),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    value = VALUES[name]
    data = FILE.to_bytes(value)
    again = FILE.from_bytes(data)
    assert again == value
    assert repr(again) == repr(value), "types and signs of zero"
    assert FILE.to_bytes(again) == data


def test_not_a_number() -> None:
    assert math.isnan(FILE.from_bytes(FILE.to_bytes(math.nan)))


def test_what_is_one_object_stays_one() -> None:
    leaf, other = Node(1, 2), Node(1, 2)
    again = FILE.from_bytes(FILE.to_bytes((leaf, other, Node(leaf, leaf), x + 3)))
    assert again[0] is not again[1]
    assert again[2].left is again[0] is again[2].right
    assert again[3] is x + 3, "expressions are interned"
    assert len(FILE.to_bytes(((leaf,) * 999,))) < len(FILE.to_bytes(tuple(Node(1, 2) for _ in range(999)))) / 2


def test_depth_is_not_limited() -> None:
    value: object = 1
    for _ in range(20000):
        value = Leaf(value)
    again = FILE.from_bytes(FILE.to_bytes(value))
    for _ in range(20000):
        again = again.value
    assert again == 1


def test_a_class_by_hand() -> None:
    again = FILE.from_bytes(FILE.to_bytes(Odd(5)))
    assert isinstance(again, Odd)
    assert again.kept == [5]


def test_what_cannot_be_written() -> None:
    for value, text in [
        (Leaf([1]), "a list cannot be written to a file of kind test: [1]"),
        (object, "a type cannot be written to a file of kind test: <class 'object'>"),
        (len, "a builtin_function_or_method cannot be written to a file of kind test: <built-in function len>"),
    ]:
        with pytest.raises(TypeError) as caught:
            FILE.to_bytes(value)
        assert str(caught.value) == text
    with pytest.raises(TypeError, match=r"^Odd is no record: say by hand how it is written$"):
        RecordFile("test", 1, [Odd])


# --- what is no such file -------------------------------------------------------------------------------------------------


def reason(data: bytes) -> str:
    with pytest.raises(UnreadableError) as caught:
        FILE.from_bytes(data)
    return str(caught.value)


WHOLE = FILE.to_bytes((Leaf(b"binary"), x + 1, 0.5))


def test_every_shorter_one() -> None:
    for length in range(len(WHOLE)):
        assert reason(WHOLE[:length])


def test_every_flipped_bit() -> None:
    for place in range(len(WHOLE)):
        for bit in range(8):
            changed = bytearray(WHOLE)
            changed[place] ^= 1 << bit
            assert reason(bytes(changed))


def test_reasons() -> None:
    head, _, rest = WHOLE.partition(b"\n")
    fuser, kind, version, length, _ = head.split(b" ")
    assert (fuser, kind, version, length) == (b"fuser", b"test", b"3", str(len(rest)).encode())
    assert reason(b"") == "it is no file of fuser"
    assert reason(b"\x7fELF" + bytes(300)) == "it is no file of fuser"
    assert reason(WHOLE.replace(b" test ", b" kernel ", 1)) == "it holds a kernel, not a test"
    assert reason(WHOLE.replace(b" 3 ", b" 4 ", 1)) == "it has format 4, and this version of fuser reads format 3"
    assert reason(WHOLE + b"x") == f"it has {len(rest) + 1} bytes of {len(rest)}"
    assert reason(WHOLE[:-1]) == f"it has {len(rest) - 1} bytes of {len(rest)}"
    assert reason(WHOLE[:-1] + b"?") == "its checksum is wrong"


def test_other_classes() -> None:
    """A file of a version whose classes are others, although it has the same number."""

    @record
    class Longer:
        value: object
        added: int = 0

    @record
    class Shorter:
        value: object

    def named(cls: type, name: str) -> type:
        cls.__qualname__ = name
        return cls

    written = FILE.to_bytes(Leaf(1))
    for cls, text in [
        (named(Longer, "Leaf"), "(value, extra), and in this version of fuser (value, added)"),
        (named(Shorter, "Leaf"), "(value, extra), and in this version of fuser (value)"),
    ]:
        with pytest.raises(UnreadableError) as caught:
            RecordFile("test", 3, [cls]).from_bytes(written)
        assert str(caught.value) == f"its {class_name(Leaf)} has the fields {text}"
    with pytest.raises(UnreadableError) as caught:
        RecordFile("test", 3, []).from_bytes(written)
    assert str(caught.value) == f"it holds a {class_name(Leaf)}, which this version of fuser does not know"


class Table(NamedTuple):
    """The table of a file, to change it."""

    content: dict[str, Any]

    def sealed(self) -> bytes:
        text = json.dumps(self.content).encode()
        rest = len(text).to_bytes(8, "little") + text
        from hashlib import sha256

        return f"fuser test 3 {len(rest)} {sha256(rest).hexdigest()}\n".encode() + rest


def test_nonsense_under_a_right_checksum() -> None:
    _, _, rest = FILE.to_bytes(Leaf(Colour.red, x + 1)).partition(b"\n")
    size = int.from_bytes(rest[:8], "little")
    table = json.loads(rest[8 : 8 + size])
    assert FILE.from_bytes(Table(table).sealed()) == Leaf(Colour.red, x + 1)
    for change in (
        {"rows": [[99]]},
        {"rows": [[0, [5]]]},
        {"rows": 7},
        {"root": [77]},
        {"classes": []},
        {"classes": [[class_name(Colour), ["name"]]], "rows": [[0, "green"]], "root": [0]},
        {"classes": [["integer", []]], "rows": [[0, "+", 0, 3, 9]], "root": [0]},
    ):
        assert reason(Table({**table, **change}).sealed()).startswith("its contents make no sense")


def test_two_classes_of_one_name_are_no_kind_of_file() -> None:
    """Names leave out folders: the second would be read as the first."""

    def leaf() -> type:
        @record
        class Same:
            value: object

        return Same

    with pytest.raises(AssertionError, match="two classes of a kind of file have one name"):
        RecordFile("test", 1, (leaf(), leaf()))
