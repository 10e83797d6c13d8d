"""The key of a call: all that the program bound to a call depends on, read off the arguments once.

Grammar
    key  := (reader, also, part*, text*)
    part := dtype shape strides low_bits place          of a device array; `low_bits` say how its address is aligned
          | dtype shape strides low_bits                of a host array; where those run stands in the key once
          | dtype [value]                               of a number in an array of rank 0
          | [value]                                     of a number

`reader` identifies the types of all arguments, and so the array libraries and kinds of numbers. The value of a number is in
the key only if sizes or host arithmetic depend on it; numbers are equal if their bits are. `text` is the value of an option
that programs of this caller depend on, `also` is what the caller adds. Strides and shapes are as the library gives them.

The key determines what a call runs, except for two things: which arguments share memory (`Spans`), and what is read again at
each call: streams, and flags of tensors whose memory does not hold their values (lazy negation, conjugation).

    read = reader_for((torch.Tensor, torch.Tensor, float), numbers={2}, fixing=set())
    found = read([x, y, 2.0], None)             (key, address of each input, 0 for a number); None: no key, see Launcher._first

A reader is generated for the types, so that a call costs one attribute access per part of its key.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from fuser import options
from fuser.runtime.array_view import KEPT_ALIGNMENT, MAX_ALIGNMENT, ArrayKind
from fuser.runtime.arrays.arrays import known_kind
from fuser.runtime.arrays.device_choice import current_cuda_device
from fuser.runtime.scalars import Scalar, python_number

Key = tuple[Any, ...]
Read = Callable[[Sequence[Any], object], "tuple[Key, tuple[int, ...]] | None"]

# Overlap := (input, other input, bytes from the address of the first to that of the second)
Overlaps = tuple[tuple[int, int, int], ...]

# Kinds of arrays whose layouts a reader can read: those of JAX and of the interfaces are described anew at each call.
KINDS: tuple[ArrayKind, ...] = ("torch", "cupy", "fuser", "numpy")

_numbers = itertools.count()


_text, _encode = options.environment_reader()
_DEVICE = _encode(options.DEVICE.env)
_ENABLE, _DISABLE = _encode(options.ENABLE.env), _encode(options.DISABLE.env)


def default_place() -> object:
    """What decides where host arrays run: FUSER_DEVICE, and the current GPU of the caller's library."""
    return _text(_DEVICE), current_cuda_device() if "torch" in sys.modules else 0


def texts_of(*asked: options.Option[Any]) -> Callable[[], list[object]]:
    """What asks for the texts of options, None for one that is not set."""
    keys = [_encode(option.env) for option in asked]
    return lambda: list(map(_text, keys))


def reader_for(
    types: Sequence[type],
    numbers: Collection[int],
    fixing: Collection[int],
    alignment: int = MAX_ALIGNMENT,
    *,
    takes_options: bool = False,
) -> Read | None:
    """The reader of arguments of these types, None where there is none.

    numbers    positions of inputs that are used as numbers alone
    fixing     those among them whose values belong to the key
    alignment  addresses that are multiples of it are alike; a power of two
    takes_options  whether FUSER_ENABLE and FUSER_DISABLE matter; a text that changes is seen by the next call
    """
    low = _LOW.format(p="{p}", mask=alignment - 1)
    kinds = [known_kind(t) for t in types]
    arrays = {kind for i, kind in enumerate(kinds) if kind is not None and i not in numbers}
    if len(arrays) != 1 or not arrays.issubset(KINDS):
        return None
    lines: list[str] = []
    parts: list[str] = []
    addresses: list[str] = []
    for i, (kind, of_type) in enumerate(zip(kinds, types, strict=True)):
        a, p = f"a{i}", f"p{i}"
        if kind is None and i not in numbers:
            return None
        if i not in numbers:
            lines += [line.format(a=a, p=p) for line in _LINES[kind]]
            parts += [(low if part == "low" else part).format(a=a, p=p) for part in _PARTS[kind]]
            addresses.append(p)
            continue
        addresses.append("0")
        value = a
        if kind == "numpy" or kind == "torch":
            lines.append(f"    if {a}.shape{f' or {a}.is_cuda' if kind == 'torch' else ''}: return None")
            parts.append(f"{a}.dtype")
            value = f"{a}.item()"
        elif kind is not None:
            return None
        if i in fixing:
            parts.append(value if of_type in (int, bool) else f"exact({value})")
    if "numpy" in arrays:
        parts.append("place()")
    if takes_options:
        parts += ["text(ENABLE)", "text(DISABLE)"]
    names = "".join(f"a{i}, " for i in range(len(types)))
    text = "\n".join(
        (
            "def read(inputs, also):",
            f"    {names}= inputs",
            *lines,
            f"    return ({next(_numbers)}, also, {', '.join(parts)},), ({', '.join(addresses)},)",
        )
    )
    space: dict[str, Any] = {
        "exact": exact,
        "place": default_place,
        "text": _text,
        "ENABLE": _ENABLE,
        "DISABLE": _DISABLE,
    }
    exec(compile(text, "<key of a call>", "exec"), space)
    return space["read"]


_LOW = "{p} & {mask} and {p} & -{p} & {mask}"
"""0 for an address that is a multiple of all that matters, else its lowest bit."""

_LINES: dict[Any, tuple[str, ...]] = {
    "torch": ("    {p} = {a}.data_ptr()",),
    "cupy": ("    {p} = {a}.data.ptr",),
    "fuser": ("    {p} = {a}.address",),
    "numpy": ("    {p} = {a}.ctypes.data",),
}
_PARTS: dict[Any, tuple[str, ...]] = {
    "torch": ("{a}.dtype", "{a}.shape", "{a}.stride()", "low", "{a}.is_cuda", "{a}.get_device()"),
    "cupy": ("{a}.dtype", "{a}.shape", "{a}.strides", "low", "{a}.data.device_id"),
    "fuser": ("{a}.dtype", "{a}.shape", "{a}.strides", "low", "{a}.device"),
    # The copy on the device keeps these bits of the address, all of them.
    "numpy": ("{a}.dtype", "{a}.shape", "{a}.strides", f"{{p}} & {KEPT_ALIGNMENT - 1}"),
}


def exact(value: Any) -> object:
    """What is equal for numbers of the same bits alone: -0.0 is not 0.0, and nan is nan."""
    number: Scalar = python_number(value)
    return number.hex() if isinstance(number, float) else repr(number)


class Spans:
    """Bytes of inputs, from their addresses: (input, first byte, past the last) of each that stores any."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Sequence[tuple[int, int, int]]) -> None:
        self._spans = tuple(span for span in spans if span[1] != span[2])

    def of(self, inputs: Sequence[Any], addresses: Sequence[int]) -> Overlaps:
        """Which of them share memory, and by how much they are apart."""
        del inputs
        if len(self._spans) < 2:
            return ()
        ranges = sorted((addresses[i] + low, addresses[i] + high, i) for i, low, high in self._spans)
        found: list[tuple[int, int, int]] = []
        # Those so far that end behind where the next one begins.
        open_ranges: list[tuple[int, int]] = []
        for low, high, i in ranges:
            if open_ranges:
                open_ranges = [(end, other) for end, other in open_ranges if end > low]
                for _, other in open_ranges:
                    a, b = min(i, other), max(i, other)
                    found.append((a, b, addresses[b] - addresses[a]))
            open_ranges.append((high, i))
        return tuple(sorted(found)) if found else ()
