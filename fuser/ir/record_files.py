"""Records as bytes and back: what is kept on disk, sent in pickles and saved by users.

Grammar
    file     := "fuser <kind> <version> <bytes of the rest> <SHA-256 of the rest>\\n" rest
    rest     := <bytes of the table>:8, little-endian; table; blobs
    table    := JSON {"classes": [[name, [field, ...]], ...], "blobs": [bytes, ...], "rows": [row, ...], "root": value}
    row      := [class, value, ...]              an object: a number of `classes`, then a value for each field
    value    := null | true | number | text | [row number]

An object is one row, however often it occurs, and a row mentions only those above it: reading a file is one loop, whatever the
depth, and what was one object is one again. Besides registered classes (records, data classes, named tuples, enumerations)
there are tuples, frozensets, dicts, bytes, complex numbers and integer expressions. Equal objects give equal bytes, in every
process.

Nothing in a file is executed or looked up by name in a module: a class that is not registered, or has other fields than it was
written with, is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from fuser.ir.integers.hashing import sha256
from fuser.ir.integers.integers import Cond, Int, from_parts, parts_of


class UnreadableError(ValueError):
    """Bytes that are no file of the kind and version asked for. The message says why, in a clause: `it is cut short`."""


class ByHand(NamedTuple):
    """How instances of a class that is no record are taken apart, and made again from the parts."""

    fields: tuple[str, ...]
    take_apart: Callable[[Any], Sequence[object]]
    make: Callable[..., object]


class _Class(NamedTuple):
    """`make` takes a list of values."""

    name: str
    fields: tuple[str, ...]
    take_apart: Callable[[Any], Sequence[object]]
    make: Callable[[list[Any]], object]


_PLAIN = (str, int, float, bool, type(None))
_HEADER_LENGTH = 200  # more than any


class RecordFile:
    """A kind of file: its name, its version, and the classes whose instances may be in it.

    The version has to change where what is written means something else, and need not where a class gets another field.
    """

    def __init__(
        self, kind: str, version: int, classes: Iterable[type], by_hand: dict[type, ByHand] | None = None
    ) -> None:
        self.kind = kind
        self.version = version
        self._classes: dict[type, _Class] = {c: _described(c) for c in classes}
        self._classes |= {c: _Class(class_name(c), *_unpacked(how)) for c, how in (by_hand or {}).items()}
        self._classes |= _BUILT_IN
        self._by_name = {c.name: c for c in (*self._classes.values(), _INTEGER)}
        assert len(self._by_name) == len(self._classes) + 1, "two classes of a kind of file have one name"

    @property
    def classes(self) -> frozenset[type]:
        """Those whose instances may be in a file."""
        return frozenset(self._classes)

    # --- writing ---

    def to_bytes(self, root: object) -> bytes:
        """The file. Raises TypeError for an object of a class that is not registered."""
        names: dict[str, int] = {}
        rows: list[list[Any]] = []
        blobs: list[bytes] = []
        row_of: dict[int, int] = {}
        # By id: with the object, which must live as long as its id stands for it.
        opened: dict[int, tuple[object, _Class, Sequence[object]]] = {}

        def value(part: object) -> Any:
            return part if type(part) in _PLAIN else [row_of[id(part)]]

        stack: list[object] = [root]
        while stack:
            top = stack[-1]
            if type(top) in _PLAIN or id(top) in row_of:
                stack.pop()
                continue
            if id(top) not in opened:
                known = self._class_of(top)
                parts = known.take_apart(top)
                opened[id(top)] = (top, known, parts)
                missing = [p for p in parts if type(p) not in _PLAIN and id(p) not in row_of]
                if missing and known is not _BYTES:
                    stack += reversed(missing)
                    continue
            _, known, parts = opened[id(top)]
            stack.pop()
            row_of[id(top)] = len(rows)
            number = names.setdefault(known.name, len(names))
            if known is _BYTES:
                assert isinstance(top, bytes)
                rows.append([number, len(blobs)])
                blobs.append(top)
            else:
                rows.append([number, *(value(p) for p in parts)])
        classes = [[name, self._by_name[name].fields] for name in names]
        table = {"classes": classes, "blobs": [len(b) for b in blobs], "rows": rows, "root": value(root)}
        text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
        rest = b"".join([len(text).to_bytes(8, "little"), text, *blobs])
        return f"fuser {self.kind} {self.version} {len(rest)} {sha256()(rest).hexdigest()}\n".encode() + rest

    def _class_of(self, value: object) -> _Class:
        known = self._classes.get(type(value))
        if known is not None:
            return known
        if isinstance(value, (Int, Cond)):
            return _INTEGER
        raise TypeError(f"a {type(value).__name__} cannot be written to a file of kind {self.kind}: {value!r}")

    # --- reading ---

    def from_bytes(self, data: bytes) -> Any:
        """What was written. Raises UnreadableError, with the reason, for anything but a whole file of this kind and version."""
        rest = self._checked(data)
        size = int.from_bytes(rest[:8], "little")
        try:
            table = json.loads(rest[8 : 8 + size].decode("utf-8", "surrogatepass"))
            makers = [self._maker(name, fields) for name, fields in table["classes"]]
            blobs: list[bytes] = []
            at = 8 + size
            for length in table["blobs"]:
                blobs.append(rest[at : at + length])
                at += length
            made: list[Any] = []
            for row in table["rows"]:
                values = [made[v[0]] if v.__class__ is list else v for v in row]
                maker = makers[values[0]]
                made.append(blobs[values[1]] if maker is _BYTES.make else maker(values[1:]))
            root = table["root"]
            return made[root[0]] if isinstance(root, list) else root
        except UnreadableError:
            raise
        except Exception as error:
            # Whole, and still nonsense: not written by this class. What is wrong shows wherever it is used first.
            raise UnreadableError(f"its contents make no sense ({type(error).__name__}: {error})") from error

    def _checked(self, data: bytes) -> bytes:
        """The rest of a file."""
        head, newline, _ = data[:_HEADER_LENGTH].partition(b"\n")
        words = head.decode("ascii", "replace").split(" ")
        if not newline or len(words) != 5 or words[0] != "fuser":
            raise UnreadableError("it is no file of fuser")
        _, kind, version, length, digest = words
        if kind != self.kind:
            raise UnreadableError(f"it holds a {kind}, not a {self.kind}")
        if version != str(self.version):
            raise UnreadableError(f"it has format {version}, and this version of fuser reads format {self.version}")
        rest = data[len(head) + 1 :]
        if str(len(rest)) != length:
            raise UnreadableError(f"it has {len(rest)} bytes of {length}")
        if sha256()(rest).hexdigest() != digest:
            raise UnreadableError("its checksum is wrong")
        return rest

    def _maker(self, name: str, fields: Sequence[str]) -> Callable[[list[Any]], object]:
        known = self._by_name.get(name)
        if known is None:
            raise UnreadableError(f"it holds a {name}, which this version of fuser does not know")
        if list(known.fields) != fields:
            there, here = ", ".join(fields), ", ".join(known.fields)
            raise UnreadableError(f"its {name} has the fields ({there}), and in this version of fuser ({here})")
        return known.make


def class_name(cls: type) -> str:
    """What a class is called in files, `kernel_statements.For`: whatever folder its module is in."""
    return f"{cls.__module__.rpartition('.')[2]}.{cls.__qualname__}"


def _described(cls: type) -> _Class:
    if issubclass(cls, Enum):
        return _Class(class_name(cls), ("name",), lambda member: (member.name,), lambda v: cls[v[0]])
    fields = getattr(cls, "_fields", None)
    if fields is not None:
        return _Class(class_name(cls), fields, tuple, lambda v: cls(*v))
    # Of a record `__dataclass_fields__` would have to be made first.
    found = cls.__dict__.get("__record_defaults__", cls.__dict__.get("__dataclass_fields__"))
    if found is None:
        raise TypeError(f"{cls.__name__} is no record: say by hand how it is written")
    names = tuple(found)
    return _Class(class_name(cls), names, lambda it: [getattr(it, name) for name in names], lambda v: cls(*v))


def _unpacked(how: ByHand) -> tuple[tuple[str, ...], Callable[[Any], Sequence[object]], Callable[[list[Any]], object]]:
    return how.fields, how.take_apart, lambda v: how.make(*v)


def _dict(flat: list[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _flat(items: dict[Any, Any]) -> list[object]:
    return [part for item in items.items() for part in item]


def _by_text(items: frozenset[Any]) -> list[Any]:
    """In the same order in every process."""
    return sorted(items, key=repr)


def _integer_parts(node: Int | Cond) -> Sequence[object]:
    word, parts = parts_of(node)
    return (word, *parts)


# Their fields are not a class's: any number of values.
_BYTES = _Class("bytes", (), lambda _: (), lambda _: b"")
_INTEGER = _Class("integer", (), _integer_parts, lambda v: from_parts(v[0], v[1:]))
_BUILT_IN: dict[type, _Class] = {
    tuple: _Class("tuple", (), lambda it: it, tuple),
    frozenset: _Class("frozenset", (), _by_text, frozenset),
    dict: _Class("dict", (), _flat, _dict),
    complex: _Class("complex", (), lambda it: (it.real, it.imag), lambda v: complex(*v)),
    bytes: _BYTES,
}
