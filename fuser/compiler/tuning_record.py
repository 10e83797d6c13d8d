"""What tuning leaves: typed records, in memory, in the disk cache and in files for other machines.

Grammar
    record    := schema; key; segment*; digest of all of it
    key       := version of fuser, fusion, inputs, compile options, device
    segment   := names of its outputs; candidate*, the proposal first; number of the winner
    candidate := parameters, fate, mark of its kernel, microseconds

A record is used where every part of its key is what is at hand, its digest is right, and its winner still becomes the very
kernel that was measured, by its mark: text, options, architecture, version of NVRTC, launch plan. Else it is a *miss*, with a
reason, and what the scheduler proposes runs. Nothing in a record has a default.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from fuser import locks, options
from fuser.compiler.bind_inputs import BoundInputs
from fuser.compiler.kernel_compiler import CompileOptions
from fuser.errors import InputRuntimeError, InputValueError
from fuser.ir.device_info import DeviceInfo, Latencies, Rates
from fuser.ir.record_files import ByHand, RecordFile
from fuser.records import record
from fuser.release import __version__
from fuser.runtime.cache.disk_cache import digest_of, disk_cache
from fuser.runtime.cache.user_files import load_from, save_to
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.schedule.params import Access, BlockGroups, ColumnsOverGrid, OverCluster, Params, RowsOverGrid
from fuser.schedule.print_params import difference
from fuser.schedule.reasons import Reasons
from fuser.schedule.segmentation.segment import Segment

SCHEMA = 4


class Fate(Enum):
    """What became of a candidate. Only those that were measured may win."""

    measured = "measured"
    refused = "not compiled"
    spills = "spills"
    occupancy = "too few threads on an SM"
    same = "the same kernel as another"
    failed = "failed"
    slow = "took longer than the limit"
    wrong = "other results than the proposal"
    unmeasured = "no time left"


@record
class Measured:
    """A candidate of a segment.

    kernel  mark of the kernel it becomes (`mark_of`); "" if it becomes none
    us      median microseconds of its runs; None unless it was measured
    runs    how many
    why     what there is to say of its fate
    """

    params: Params
    fate: Fate
    kernel: str
    us: float | None
    runs: int
    why: str


@record
class SegmentTuning:
    """The candidates of a segment, the proposal first, and which of them won."""

    outputs: tuple[str, ...]
    candidates: tuple[Measured, ...]
    winner: int

    @property
    def best(self) -> Measured:
        """The winner."""
        return self.candidates[self.winner]


@record
class TuningKey:
    """What a record holds for. `fusion` is a digest, `inputs` says shapes, strides, alignments and overlaps."""

    fuser: str
    fusion: str
    inputs: str
    options: CompileOptions
    device: DeviceInfo

    @property
    def place(self) -> str:
        """Where records for this lie, those for other devices and versions beside them."""
        return digest_of([self.fusion, self.inputs, repr(self.options)])


@record
class TuningRecord:
    """What was measured for one key. See the grammar of this module."""

    schema: int
    key: TuningKey
    segments: tuple[SegmentTuning, ...]
    digest: str

    @staticmethod
    def of(key: TuningKey, segments: Sequence[SegmentTuning]) -> TuningRecord:
        """A record of this version."""
        return TuningRecord(SCHEMA, key, tuple(segments), _digest(SCHEMA, key, tuple(segments)))


TUNING_FILE = RecordFile(
    "tuning",
    SCHEMA,
    (
        TuningRecord,
        TuningKey,
        SegmentTuning,
        Measured,
        Fate,
        CompileOptions,
        DeviceInfo,
        Rates,
        Latencies,
        *get_args(Params),
        *get_args(Access),
        BlockGroups,
        RowsOverGrid,
        ColumnsOverGrid,
        OverCluster,
    ),
    {Reasons: ByHand(("words",), lambda reasons: (reasons.words(),), Reasons.of)},
)


def key_of(
    fusion: str, bound: BoundInputs, overlapping: object, options: CompileOptions, info: DeviceInfo
) -> TuningKey:
    """The key of a (concretized) fusion for some inputs. Alignment counts up to the widest access of the device.

    fusion       its digest
    overlapping  which of the inputs share memory
    """
    tensors = (
        f"{name} {t.dtype.name} {list(t.sizes)} strides {list(t.strides)} aligned {min(t.alignment, info.max_access_bytes)}"
        for name, t in bound.tensors.items()
    )
    extents = ", ".join(f"{symbol.name}={n}" for symbol, n in bound.extents.items())
    inputs = f"{'; '.join(tensors)}; extents {extents}; overlaps {overlapping}"
    return TuningKey(__version__, fusion, inputs, options, info)


def problem_of(found: object, key: TuningKey) -> str | None:
    """Why something that was read is no record for a key, in a clause; None if it is one."""
    if not isinstance(found, TuningRecord):
        return f"it is a {type(found).__name__}, and no record"
    if found.schema != SCHEMA:
        return f"it has schema {found.schema}, and this version of fuser reads schema {SCHEMA}"
    there = found.key
    if not isinstance(there, TuningKey):
        return "it does not say what it holds for"
    if there.device != key.device:
        return f"it is of another GPU, {_name_of(there.device)}, not {key.device.name}: {_unlike(there.device, key.device)}"
    if there.fuser != key.fuser:
        return f"it is of fuser {there.fuser}, not {key.fuser}"
    for name, text in (("fusion", "another fusion"), ("inputs", "other inputs"), ("options", "other compile options")):
        if getattr(there, name) != getattr(key, name):
            return f"it is of {text}"
    return _wrong_contents(found)


def _wrong_contents(found: TuningRecord) -> str | None:
    try:
        digest = _digest(found.schema, found.key, found.segments)
    except TypeError:
        return "it holds what no record holds"
    if digest != found.digest:
        return "its digest is wrong: something in it was changed"
    if not isinstance(found.segments, tuple) or not found.segments:
        return "it has no segments"
    for segment in found.segments:
        if not isinstance(segment, SegmentTuning) or not isinstance(segment.candidates, tuple):
            return "a segment of it is none"
        if type(segment.winner) is not int or not 0 <= segment.winner < len(segment.candidates):
            return "it names no winner"
        best = segment.best
        is_measured = isinstance(best, Measured) and best.fate is Fate.measured and isinstance(best.us, float)
        if not is_measured or not math.isfinite(best.us or math.nan) or not best.kernel:
            return "its winner was not measured"
        if not isinstance(best.params, get_args(Params)):
            return "its winner has no parameters"
    return None


def _name_of(device: object) -> str:
    return device.name if isinstance(device, DeviceInfo) else repr(device)


def _unlike(there: object, here: DeviceInfo) -> str:
    """In which limits two devices differ."""
    names = DeviceInfo.__match_args__
    if not isinstance(there, DeviceInfo):
        return "it names no device"
    return ", ".join(
        f"{n} {getattr(there, n)} instead of {getattr(here, n)}" for n in names if getattr(there, n) != getattr(here, n)
    )


def _digest(schema: int, key: TuningKey, segments: tuple[SegmentTuning, ...]) -> str:
    return digest_of([TUNING_FILE.to_bytes((schema, key, segments))])


# --- use --------------------------------------------------------------------------------------------------------------


class Chosen:
    """A record that holds for the inputs at hand, as those ask it who compile the program."""

    def __init__(self, found: TuningRecord) -> None:
        self.record = found
        self._by_outputs: Mapping[tuple[str, ...], SegmentTuning] = {s.outputs: s for s in found.segments}

    def winner_for(self, segment: Segment) -> Measured | None:
        """The winner for a segment, if the record has the segment; a segment of views needs none."""
        found = self._by_outputs.get(outputs_of(segment))
        return None if found is None else found.best

    def text(self) -> str:
        """The candidates of each segment with their times, the winner marked."""
        return record_text(self.record)

    def misses(self, segment: Segment, kernel: CompiledKernel) -> bool:
        """Whether a kernel is not the one that was measured, which the log is told."""
        best = self.winner_for(segment)
        if best is None or best.kernel == mark_of(kernel):
            return False
        TABLE.missed(f"the kernel of its winner is another one by now ({best.kernel[:8]} was measured)")
        return True


def outputs_of(segment: Segment) -> tuple[str, ...]:
    """What tells the segments of a fusion apart."""
    return tuple(t.name for t in segment.fusion.output_tensors)


def mark_of(kernel: CompiledKernel) -> str:
    """What tells kernels apart: text, options, architecture, version of NVRTC, bounds of the binary, and how it is launched."""
    return digest_of([kernel.content_hash, f"{kernel.min_blocks} {kernel.register_cap}", repr(kernel.plan)])


class TuningTable:
    """The records of this process, and those on disk: in each place those of several devices and versions."""

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._records: dict[str, tuple[TuningRecord, ...]] = {}
        # Folders of disk caches, and whether there were records in them when one was first asked for.
        self._on_disk: dict[Path, bool] = {}
        self._misses: dict[str, int] = {}
        self._made: list[TuningRecord] = []

    def has_any(self) -> bool:
        """Whether it is worth asking: costs next to nothing where nobody has ever tuned."""
        if self._records:
            return True
        cache = disk_cache()
        if cache is None:
            return False
        known = self._on_disk.get(cache.folder)
        if known is None:
            known = self._on_disk[cache.folder] = (cache.folder / f"{TUNING_FILE.kind}-{TUNING_FILE.version}").is_dir()
        return known

    def find(self, key: TuningKey) -> TuningRecord | None:
        """The record of a key; where there are some that do not hold the log says why."""
        place = key.place
        found = self._records.get(place)
        if found is None:
            found = self._read(place)
        problem: str | None = None
        for one in found:
            problem = problem_of(one, key)
            if problem is None:
                return one
        if problem is not None:
            self.missed(problem)
        return None

    def add(self, made: TuningRecord) -> None:
        """Keep a record that was just measured."""
        self.keep(made)
        with self._lock:
            self._made.append(made)

    def made(self) -> tuple[TuningRecord, ...]:
        """What this process has measured, in order."""
        with self._lock:
            return tuple(self._made)

    def keep(self, made: TuningRecord) -> None:
        """Keep a record, in place of an earlier one of the same device and version."""
        place = made.key.place
        with self._lock:
            others = self._records.get(place) or self._read(place)
            kept = (*(r for r in others if isinstance(r, TuningRecord) and r.key != made.key), made)
            self._records[place] = kept
        cache = disk_cache()
        if cache is not None:
            cache.write(TUNING_FILE, place, kept)
            self._on_disk[cache.folder] = True

    def all(self) -> tuple[TuningRecord, ...]:
        """Every record that is here or on disk and can be read."""
        places = self._places_on_disk() | self._records
        return tuple(r for _, found in sorted(places.items()) for r in found)

    def on_disk(self) -> tuple[TuningRecord, ...]:
        """Every record that is on disk and can be read."""
        return tuple(r for _, found in sorted(self._places_on_disk().items()) for r in found)

    def _places_on_disk(self) -> dict[str, tuple[TuningRecord, ...]]:
        cache = disk_cache()
        entries = () if cache is None else cache.entries()
        mine = (e.path for e in entries if e.path.parent.parent.name == f"{TUNING_FILE.kind}-{TUNING_FILE.version}")
        read = {path.parent.name + path.name: self._read(path.parent.name + path.name) for path in mine}
        return {place: tuple(r for r in found if isinstance(r, TuningRecord)) for place, found in read.items()}

    def missed(self, reason: str) -> None:
        """A record is not used."""
        with self._lock:
            self._misses[reason] = self._misses.get(reason, 0) + 1
        options.logger().info("a tuning record is not used: %s", reason)

    def misses(self) -> dict[str, int]:
        """How often a record that there is was not used, by reason."""
        with self._lock:
            return dict(self._misses)

    def forget(self) -> None:
        """Drop what this process has in memory."""
        with self._lock:
            self._records.clear()
            self._on_disk.clear()
            self._misses.clear()
            self._made.clear()

    def _read(self, place: str) -> tuple[Any, ...]:
        cache = disk_cache()
        found = None if cache is None else cache.read(TUNING_FILE, place)
        return found if isinstance(found, tuple) else ()


TABLE = TuningTable()


# --- files ------------------------------------------------------------------------------------------------------------


def export_tuning(path: str | os.PathLike[str]) -> int:
    """Write all records, those of this process and those of the disk cache, to a file for other machines.

    Returns how many. Raises InputRuntimeError where there are none, OSError where the file cannot be written.
    """
    found = TABLE.all()
    if not found:
        raise InputRuntimeError(
            "there are no tuning records: fd.execute(inputs, tune=True) makes them, and `fuser tune SCRIPT`"
        )
    save_to(path, TUNING_FILE, found)
    return len(found)


def import_tuning(path: str | os.PathLike[str]) -> int:
    """Take over the records of a file that `export_tuning` wrote, in memory and in the disk cache.

    Returns how many. Which of them hold is decided when they are asked for, with the reason in the log: those of another GPU,
    another version of fuser, or a kernel that is another one by now do not.
    Raises InputValueError for a file that is damaged, of another schema, or no such file, OSError for one that cannot be read.
    """
    found = load_from(path, TUNING_FILE)
    records: Iterable[Any] = found if isinstance(found, tuple) else ()
    count = 0
    for one in records:
        problem = problem_of(one, one.key) if isinstance(one, TuningRecord) else "it holds something else"
        if problem is not None:
            raise InputValueError(f"{os.fspath(path)} cannot be loaded as tuning records: {problem}")
        count += 1
    if not count:
        raise InputValueError(f"{os.fspath(path)} cannot be loaded as tuning records: it has none")
    for one in records:
        TABLE.keep(one)
    return count


# --- text -------------------------------------------------------------------------------------------------------------


def record_text(found: TuningRecord) -> str:
    """The candidates of each segment with their times, the winner marked."""
    lines = [f"# tuned on {found.key.device.name} for {found.key.inputs}"]
    for k, segment in enumerate(found.segments):
        proposal = segment.candidates[0]
        lines.append(f"# segment {k}: {', '.join(segment.outputs)}")
        for n, it in enumerate(segment.candidates):
            mark = "->" if n == segment.winner else "  "
            what = "proposed" if n == 0 else difference(proposal.params, it.params)
            time = f"{it.us:10.2f} us" if it.us is not None else f"{'-':>10}   "
            fate = "" if it.fate is Fate.measured else f"  {it.fate.value}" + (f": {it.why}" if it.why else "")
            lines.append(f"{mark} {time}  {what}{fate}")
    return "\n".join(lines) + "\n"
