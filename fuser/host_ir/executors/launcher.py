"""The default executor: it maps the key of a call to a straight-line function, generated from the steps of an earlier call.

    first call of a key   The interpreter checks and runs each instruction; its steps are stored under the key
                          (`Launcher._first`, `_keep`).
    warm call             `Launcher.run`: a reader, a function generated for the argument types, reads the key and the addresses
                          (runtime/call_keys.py). The key is looked up in the entries of this host thread. If it is missing,
                          the stored steps are compiled to a function (`_entry`, straight_line.py). The function is called
                          with inputs, addresses and stream: it allocates outputs, writes addresses into argument buffers
                          and launches.

A `Launcher` belongs to a host program or to an executor of fusions. For a program, the first call of a key is a run of the
interpreter; for an executor it is also binding, scheduling and compiling. What the first call has checked depends only on the
key and, in some programs, on a second half of it: which inputs share memory, and which bodies scalars select.

Steps are shared by all threads. Each thread has its own straight-line functions, because a function writes to its argument
buffers. The interpreter runs all calls with arguments that no reader supports: arrays of JAX or of several libraries, and
tensors in host memory that are not NumPy arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from fuser import locks
from fuser.errors import FuserError
from fuser.host_ir.executors.derived_steps import run_steps
from fuser.host_ir.executors.families import Derive, Families
from fuser.host_ir.executors.run_history import RunHistory, Tally
from fuser.host_ir.executors.steps import BoundProgram
from fuser.host_ir.executors.straight_line import Run, straight_line
from fuser.host_ir.instructions.paths import Path
from fuser.runtime.call_keys import Key, Read, Spans, reader_for
from fuser.runtime.devices.streams import stream_handle

# A launcher that sees this many keys starts anew: its shapes never repeat.
_MAX_KEYS = 1024
# And so does one whose bound programs have that many steps, such as all the lengths of a loop: of both, what a thread has made
# of a step is half a kilobyte.
_MAX_STEPS = 1 << 16

Bind = Callable[[Sequence[Any], Any, Any, Any], "tuple[list[Any], BoundProgram]"]
"""(inputs, stream, device, also) -> (outputs, the steps that made them): a call whose key is not known."""
Prepare = Callable[[Sequence[Any]], Sequence[Any]]
"""Inputs as a reader takes them: the very same sequence where nothing is to be done."""


class _Reader(NamedTuple):
    read: Read
    numbers: frozenset[int]
    fixing: frozenset[int]
    alignment: int


class _Second(Protocol):
    """The second half of a key, where there is one."""

    def of(self, inputs: Sequence[Any], addresses: Sequence[int]) -> tuple[Any, ...]:
        """That of a call; empty if it is as most are. Raises what arguments that do not fit raise."""
        ...


class _SpansAndPath:
    """Which inputs share memory, if that matters, and what numbers decide."""

    def __init__(self, spans: Spans | None, path: Path) -> None:
        self._spans = spans
        self._path = path

    def of(self, inputs: Sequence[Any], addresses: Sequence[int]) -> tuple[Any, ...]:
        return () if self._spans is None else self._spans.of(inputs, addresses), *self._path.of(inputs)


class _Entry(NamedTuple):
    """What a key leads to. Where it has a second half, `run` is for calls whose second half is empty, None where none of them
    have come."""

    run: Run | None
    bound: BoundProgram | None
    second: _Second | None


class Launcher:
    """Bound programs by key. `bind` is a call whose key is not known, `prepare` unfolds what readers do not read;
    `takes_options` where programs depend on FUSER_ENABLE and FUSER_DISABLE; `derive` is `bind` for numbers of a trace, which
    runs nothing, and `fixing` are positions of numbers whose values belong to keys."""

    def __init__(
        self,
        bind: Bind,
        prepare: Prepare,
        derive: Derive,
        *,
        takes_options: bool = False,
        fixing: frozenset[int] = frozenset(),
    ) -> None:
        self._bind = bind
        self._prepare = prepare
        self._takes_options = takes_options
        self._families = Families(derive, fixing)
        self._lock = locks.reentrant_lock()
        self._reads: dict[tuple[type, ...], Read] = {}
        self._readers: dict[tuple[type, ...], _Reader] = {}
        # By keys, of calls that have no second half or an empty one; and by both halves.
        self._bound: dict[Key, tuple[BoundProgram | None, _Second | None]] = {}
        self._bound_halves: dict[tuple[Key, tuple[Any, ...]], BoundProgram] = {}
        self._steps = 0
        self._tallies: dict[tuple[RunHistory, frozenset[tuple[str, int]]], Tally] = {}
        self._threads = threading.local()
        self.latest: BoundProgram | None = None
        # Argument cells and driver functions are those of the parent.
        locks.in_child_of(self, Launcher._forget_threads)

    def run(self, inputs: Sequence[Any], stream: Any = None, device: Any = None, also: Any = None) -> list[Any]:
        """Run once. `HostProgram.run` says what the arguments are; `also` is what else the program depends on."""
        threads = self._threads
        try:
            entries: dict[Any, Any] = threads.entries
        except AttributeError:
            entries = threads.entries = {}
            threads.steps = 0
        read = self._reads.get(tuple(map(type, inputs)))
        if read is None:
            return self._first(inputs, stream, device, also)
        try:
            found = read(inputs, also if device is None else (also, type(device), device))
            if found is None:
                return self._first(inputs, stream, device, also)
            key, addresses = found
            entry = entries.get(key)
        except Exception:  # a closer look may refuse such arguments, and says why
            return self._first(inputs, stream, device, also)
        if entry is None:
            entry = self._entry(entries, key)
            if entry is None:
                return self._first(inputs, stream, device, also)
        run, bound, second = entry
        if second is not None:
            try:
                half = second.of(inputs, addresses)
            except Exception:  # as above
                return self._first(inputs, stream, device, also)
            if half:
                run, bound = self._halves(entries, key, half)
        if run is None:
            return self._first(inputs, stream, device, also)
        if stream is not None and type(stream) is not int:
            stream = stream_handle(stream)
        try:
            results = run(inputs, addresses, stream)
        except FuserError as error:
            error.add_note("while running a host program for arguments like those of an earlier run")
            raise
        if results is NotImplemented:
            return self._first(inputs, stream, device, also)
        self.latest = bound
        return results

    def bound_for(
        self, inputs: Sequence[Any], device: Any = None, also: Any = None
    ) -> tuple[BoundProgram, tuple[int, ...]] | None:
        """The steps that `run` would run again for these arguments, and the address of each, 0 for a number; None if it would
        leave them to the first call of a key.
        """
        read = self._reads.get(tuple(map(type, inputs)))
        if read is None:
            return None
        try:
            found = read(inputs, also if device is None else (also, type(device), device))
            if found is None:
                return None
            key, addresses = found
            bound, second = self._bound.get(key, (None, None))
            half = () if second is None else second.of(inputs, addresses)
        except Exception:  # as in `run`
            return None
        if half:
            bound = self._bound_halves.get((key, half))
        return None if bound is None else (bound, addresses)

    # --- what a thread has --------------------------------------------------------------------------------------------

    def _entry(self, entries: dict[Any, Any], key: Key) -> _Entry | None:
        """The entry of a key in this thread, made of what another one found."""
        found = self._bound.get(key)
        if found is None:
            return None
        bound, second = found
        entry = _Entry(None if bound is None else self._line(bound), bound, second)
        self._add(entries, key, entry, bound)
        return entry

    def _halves(
        self, entries: dict[Any, Any], key: Key, half: tuple[Any, ...]
    ) -> tuple[Run | None, BoundProgram | None]:
        """What runs for both halves of a key."""
        whole = (key, half)
        pair = entries.get(whole)
        if pair is None:
            bound = self._bound_halves.get(whole)
            if bound is None:
                return None, None
            pair = (self._line(bound), bound)
            self._add(entries, whole, pair, bound)
        return pair

    def _add(self, entries: dict[Any, Any], key: object, entry: object, bound: BoundProgram | None) -> None:
        """Keep what this thread has made."""
        threads = self._threads
        threads.steps += 0 if bound is None else len(bound.steps)
        if len(entries) >= _MAX_KEYS or threads.steps > _MAX_STEPS:
            entries.clear()
            threads.steps = 0 if bound is None else len(bound.steps)
        entries[key] = entry

    def _line(self, bound: BoundProgram) -> Run:
        def again(inputs: Sequence[Any], addresses: Sequence[int], stream: int | None) -> Any:
            return straight_line(bound, again)(inputs, addresses, stream)

        return straight_line(bound, again)

    def forget(self) -> None:
        """Take every call for a first one again: what its arguments lead to has changed."""
        with self._lock:
            self._bound.clear()
            self._bound_halves.clear()
            self._steps = 0
            # Threads that are in a call go on with what they have.
            self._forget_threads()

    def _forget_threads(self) -> None:
        self._threads = threading.local()

    # --- first calls --------------------------------------------------------------------------------------------------

    def _first(self, inputs: Sequence[Any], stream: Any, device: Any, also: Any) -> list[Any]:
        plain = self._prepare(inputs)
        if plain is not inputs:
            return self.run(plain, stream, device, also)
        which = also if device is None else (also, type(device), device)
        found = self._families.bound_for(inputs, device, also)
        if found is not None:
            bound, values = found
            results = run_steps(bound, values, stream)
        else:
            results, bound = self._bind(inputs, stream, device, also)
        self.latest = bound
        if bound.why_not is None:
            with self._lock:
                self._keep(inputs, bound, which)
            if found is None:
                self._families.went_whole_way(inputs, bound, device, also)
        return results

    def _keep(self, inputs: Sequence[Any], bound: BoundProgram, also: Any) -> None:
        """Keep what a first call has found, for the next one of its key."""
        reader = self._reader(tuple(map(type, inputs)), bound)
        if reader is None:
            return
        found = reader(inputs, also)
        if found is None:
            return
        key, addresses = found
        try:
            hash(key)
        except TypeError:  # a device that is no key
            return
        self._steps += len(bound.steps)
        if max(len(self._bound), len(self._bound_halves)) >= _MAX_KEYS or self._steps > _MAX_STEPS:
            self._bound.clear()
            self._bound_halves.clear()
            self._steps = len(bound.steps)
        bound.types = tuple(map(type, inputs))
        bound.tally = self._tally(bound)
        spans = Spans(bound.spans) if bound.sharing_matters else None
        second: _Second | None = spans if bound.path is None else _SpansAndPath(spans, bound.path)
        half = () if second is None else second.of(inputs, addresses)
        if half:
            self._bound_halves.setdefault((key, half), bound)
            self._bound.setdefault(key, (None, second))
            return
        if self._bound.get(key, (None, None))[0] is None:
            # What is there already may just not do for what stands beside the key, such as a stream.
            self._bound[key] = (bound, second)
        # An entry that this thread made when only calls with a second half were known, to whichever thread.
        entries: dict[Any, Any] = getattr(self._threads, "entries", {})  # none: they were forgotten meanwhile
        if key in entries and entries[key].run is None:
            del entries[key]

    def _reader(self, types: tuple[type, ...], bound: BoundProgram) -> Read | None:
        numbers = frozenset(i for i in bound.numbers.values() if i < len(types))
        known = self._readers.get(types)
        if known is not None:
            if known.numbers != numbers:
                return None
            if bound.fixing <= known.fixing and bound.alignment <= known.alignment:
                return known.read
        fixing = bound.fixing if known is None else bound.fixing | known.fixing
        alignment = bound.alignment if known is None else max(bound.alignment, known.alignment)
        read = reader_for(types, numbers, fixing, alignment, takes_options=self._takes_options)
        if read is not None:
            self._readers[types] = _Reader(read, numbers, fixing, alignment)
            self._reads[types] = read
        return read

    def _tally(self, bound: BoundProgram) -> Tally:
        """Where runs are counted: one for all that count the same, however many keys come and go."""
        which = (bound.history, frozenset(bound.counts.items()))
        found = self._tallies.get(which)
        if found is None:
            found = self._tallies[which] = bound.history.new_tally(bound.counts)
        return found

    # --- questions ----------------------------------------------------------------------------------------------------

    def replays(self) -> int:
        """How many calls found their key."""
        with self._lock:
            return sum(tally.replays for tally in self._tallies.values())
