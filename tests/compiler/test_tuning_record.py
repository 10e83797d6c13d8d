"""Records of tuning: what is dropped, altered, of another GPU or older is a miss with a reason; files go to other machines."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import DataType, FusionDefinition, Tuning
from fuser.compiler.kernel_compiler import CompileOptions
from fuser.compiler.segment_trial import Trial
from fuser.compiler.tuning_record import (
    SCHEMA,
    TABLE,
    TUNING_FILE,
    Fate,
    Measured,
    SegmentTuning,
    TuningKey,
    TuningRecord,
    mark_of,
    problem_of,
    record_text,
)
from fuser.errors import InputRuntimeError, InputValueError
from fuser.ir.device_info import H200, DeviceInfo
from fuser.ir.integers.hashing import sha256
from fuser.runtime.cache.disk_cache import DiskCache
from fuser.schedule.params import PointwiseParams
from fuser.schedule.reasons import Reasons
from tests.compiler.tuning_records import KEY, PARAMS, RECORD, SEGMENT


class Clock:
    """Candidates with more than one vector a thread are faster."""

    def times(self, trials: Sequence[Trial]) -> list[float]:
        return [2.0 if getattr(t.params, "unroll", 1) > 1 else 4.0 for t in trials]


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A cache of the test's own, and no records of other tests."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    monkeypatch.setenv("FUSER_CACHE", "on")
    monkeypatch.setenv("FUSER_CACHE_DIR", str(tmp_path / "cache"))
    TABLE.forget()
    yield
    TABLE.forget()


def definition() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.Float)
        fd.add_output(x * 2.0 + 1.0)
    return fd


X = np.arange(65536, dtype=np.float32)


def tuned() -> TuningRecord:
    """The record of a definition that was tuned just now."""
    (y,) = definition().execute([X], tune=Tuning(timer=Clock()))
    np.testing.assert_array_equal(y, X * 2 + 1)
    made = TABLE.made()[-1]
    assert made.segments[0].winner > 0
    return made


def kernel_of(fd: FusionDefinition) -> str:
    fd.program([X])
    (kernel,) = fd.fec.kernels([X])
    return mark_of(kernel)


# --- what holds -------------------------------------------------------------------------------------------------------


def test_a_record_holds_reasons_that_nobody_had_read() -> None:
    why = replace(SEGMENT.candidates[0], params=replace(PARAMS, reasons=Reasons(lambda: ("one", "two"))))
    record = TuningRecord.of(KEY, [replace(SEGMENT, candidates=(why, *SEGMENT.candidates[1:]))])
    again = TUNING_FILE.from_bytes(TUNING_FILE.to_bytes(record))
    assert tuple(again.segments[0].candidates[0].params.reasons) == ("one", "two")
    assert problem_of(again, KEY) is None


def test_a_record_holds_for_its_key() -> None:
    assert problem_of(RECORD, KEY) is None
    assert TUNING_FILE.from_bytes(TUNING_FILE.to_bytes(RECORD)) == RECORD


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (replace(KEY, fuser="1.1"), "it is of fuser 1.0, not 1.1"),
        (replace(KEY, fusion="abd"), "it is of another fusion"),
        (replace(KEY, inputs="t0 Float [9]"), "it is of other inputs"),
        (replace(KEY, options=CompileOptions(("--fmad=false",))), "it is of other compile options"),
        (
            replace(KEY, device=replace(H200, name="H100", l2_bytes=1)),
            "it is of another GPU, H200, not H100: name H200 instead of H100, l2_bytes 62914560 instead of 1",
        ),
    ],
)
def test_another_key_is_a_miss(key: TuningKey, problem: str) -> None:
    assert problem_of(RECORD, key) == problem


def altered(value: object) -> list[Any]:
    """Other values for a field: of its type, of another one, and none."""
    match value:
        case bool():
            return [not value, None]
        case int() | float():
            return [value + 1, -value - 1, str(value), None]
        case str():
            return [value + "x", 7, None]
        case None:
            return [1.0, ""]
        case tuple():
            return [(*value, 1), *([()] if value else []), None, "t"]
        case Fate():
            return [*(f for f in Fate if f is not value), None]
        case _:
            return [None, 3]


def changed(it: Any, name: str, value: object) -> Any:
    return type(it)(**{n: value if n == name else getattr(it, n) for n in type(it).__match_args__})


def alterations() -> Iterator[tuple[str, TuningRecord]]:
    """The record with one field of one of its parts altered: of itself, key, segment, each candidate, parameters, device."""

    def with_segment(segment: Any) -> TuningRecord:
        return changed(RECORD, "segments", (segment,))

    def with_candidate(n: int, candidate: Any) -> TuningRecord:
        candidates = tuple(candidate if k == n else c for k, c in enumerate(SEGMENT.candidates))
        return with_segment(changed(SEGMENT, "candidates", candidates))

    for name in TuningRecord.__match_args__:
        yield from ((f"record.{name}", changed(RECORD, name, v)) for v in altered(getattr(RECORD, name)))
    for name in TuningKey.__match_args__:
        for value in altered(getattr(KEY, name)):
            yield f"key.{name}", changed(RECORD, "key", changed(KEY, name, value))
    for name in DeviceInfo.__match_args__:
        for value in altered(getattr(H200, name)):
            yield f"device.{name}", changed(RECORD, "key", changed(KEY, "device", changed(H200, name, value)))
    for name in SegmentTuning.__match_args__:
        yield from (
            (f"segment.{name}", with_segment(changed(SEGMENT, name, v))) for v in altered(getattr(SEGMENT, name))
        )
    for n, candidate in enumerate(SEGMENT.candidates):
        for name in Measured.__match_args__:
            for value in altered(getattr(candidate, name)):
                yield f"candidate.{name}", with_candidate(n, changed(candidate, name, value))
        for name in PointwiseParams.__match_args__:
            for value in altered(getattr(candidate.params, name)):
                params = changed(candidate.params, name, value)
                yield f"params.{name}", with_candidate(n, changed(candidate, "params", params))


def test_every_field_altered_is_a_miss() -> None:
    seen = 0
    for what, found in alterations():
        assert problem_of(found, KEY) is not None, what
        seen += 1
    assert seen > 200


def test_altered_fields_with_a_right_digest_are_a_miss_where_they_make_no_winner() -> None:
    """Whoever writes records by hand: types and the winner are looked at all the same."""
    for segments, problem in (
        ((), "it has no segments"),
        ((replace(SEGMENT, winner=2),), "its winner was not measured"),
        ((replace(SEGMENT, winner=3),), "it names no winner"),
        ((replace(SEGMENT, winner=-1),), "it names no winner"),
        ((replace(SEGMENT, winner=True),), "it names no winner"),
        ((changed(SEGMENT, "candidates", "t"),), "a segment of it is none"),
        ((KEY,), "a segment of it is none"),
        (
            (replace(SEGMENT, candidates=(Measured(PARAMS, Fate.measured, "", 1.0, 1, ""),), winner=0),),
            "its winner was not measured",
        ),
        (
            (replace(SEGMENT, candidates=(Measured(PARAMS, Fate.measured, "aa", float("nan"), 1, ""),), winner=0),),
            "its winner was not measured",
        ),
        (
            (replace(SEGMENT, candidates=(changed(SEGMENT.candidates[0], "params", "P"),), winner=0),),
            "its winner has no parameters",
        ),
    ):
        found: Any = segments
        assert problem_of(TuningRecord.of(KEY, found), KEY) == problem
    assert problem_of(None, KEY) == "it is a NoneType, and no record"
    assert problem_of(replace(RECORD, schema=SCHEMA - 1), KEY) == (
        f"it has schema {SCHEMA - 1}, and this version of fuser reads schema {SCHEMA}"
    )


def rewritten(data: bytes, change: Any) -> bytes:
    """A file whose table is changed, with a right checksum."""
    head, _, rest = data.partition(b"\n")
    size = int.from_bytes(rest[:8], "little")
    table = json.loads(rest[8 : 8 + size])
    change(table)
    text = json.dumps(table).encode()
    body = len(text).to_bytes(8, "little") + text
    kind, version = head.decode().split(" ")[1:3]
    return f"fuser {kind} {version} {len(body)} {sha256()(body).hexdigest()}\n".encode() + body


def test_every_field_dropped_is_a_miss() -> None:
    data = TUNING_FILE.to_bytes((RECORD,))
    table = json.loads(data.partition(b"\n")[2][8:].decode())
    for n, (name, fields) in enumerate(table["classes"]):
        for k in range(len(fields)):

            def drop(t: Any, n: int = n, k: int = k) -> None:
                t["classes"][n][1].pop(k)
                for row in t["rows"]:
                    if row[0] == n:
                        row.pop(k + 1)

            with pytest.raises(ValueError, match="has the fields"):
                TUNING_FILE.from_bytes(rewritten(data, drop))
            assert name


# --- what is used -----------------------------------------------------------------------------------------------------


def test_the_record_of_another_gpu_is_a_miss_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    made = tuned()
    other = TuningRecord.of(replace(made.key, device=replace(H200, name="H100", sm_count=114)), made.segments)
    TABLE.forget()
    cache = DiskCache(Path(os.environ["FUSER_CACHE_DIR"]), 10**9)
    cache.write(TUNING_FILE, made.key.place, (other,))
    with caplog.at_level(logging.INFO, "fuser"):
        assert kernel_of(definition()) != made.segments[0].best.kernel
    assert (
        "a tuning record is not used: it is of another GPU, H100, not H200: name H100 instead of H200, sm_count 114 instead "
        "of 132" in caplog.messages
    )
    (reason,) = TABLE.misses()
    assert reason.startswith("it is of another GPU")


def test_records_of_several_gpus_lie_side_by_side() -> None:
    made = tuned()
    other = TuningRecord.of(replace(made.key, device=replace(H200, name="H100")), made.segments)
    TABLE.keep(other)
    TABLE.forget()
    assert {r.key.device.name for r in TABLE.on_disk()} == {"H200", "H100"}
    assert kernel_of(definition()) == made.segments[0].best.kernel
    assert TABLE.misses() == {} or all("another GPU" in reason for reason in TABLE.misses())


def test_a_winner_that_becomes_another_kernel_is_a_miss() -> None:
    made = tuned()
    (segment,) = made.segments
    wrong = replace(segment.best, kernel="f" * 64)
    candidates = tuple(wrong if c is segment.best else c for c in segment.candidates)
    TABLE.forget()
    TABLE.keep(TuningRecord.of(made.key, [replace(segment, candidates=candidates)]))
    assert kernel_of(definition()) == segment.candidates[0].kernel
    assert TABLE.misses() == {"the kernel of its winner is another one by now (ffffffff was measured)": 1}


def test_a_winner_that_cannot_be_lowered_is_a_miss() -> None:
    made = tuned()
    (segment,) = made.segments
    wrong = replace(segment.best, params=replace(segment.best.params, order=(5,)))
    candidates = tuple(wrong if c is segment.best else c for c in segment.candidates)
    TABLE.forget()
    TABLE.keep(TuningRecord.of(made.key, [replace(segment, candidates=candidates)]))
    assert kernel_of(definition()) == segment.candidates[0].kernel
    (reason,) = TABLE.misses()
    assert reason.startswith("its winner cannot be compiled any more: the segment of t")


def test_a_segment_that_is_not_there_is_a_miss() -> None:
    made = tuned()
    (segment,) = made.segments
    TABLE.forget()
    TABLE.keep(TuningRecord.of(made.key, [replace(segment, outputs=("t99",))]))
    assert kernel_of(definition()) == segment.candidates[0].kernel
    (reason,) = TABLE.misses()
    assert reason.startswith("it has no segment that makes t")


def test_a_damaged_file_is_a_miss(unlowered: list[str]) -> None:
    made = tuned()
    TABLE.forget()
    (entry,) = [e for e in DiskCache(Path(os.environ["FUSER_CACHE_DIR"]), 1).entries() if "tuning-" in str(e.path)]
    data = bytearray(entry.path.read_bytes())
    data[-3] ^= 1
    entry.path.write_bytes(bytes(data))
    assert kernel_of(definition()) == made.segments[0].candidates[0].kernel
    (told,) = unlowered
    assert told.endswith("that can be used: its checksum is wrong")
    unlowered.clear()


def test_nothing_is_looked_up_where_nobody_has_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a record is looked for")

    monkeypatch.setattr(TABLE, "find", refused)
    kernel_of(definition())


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_goes_to_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = tuned().segments[0].best.kernel
    file = tmp_path / "records"
    assert fuser.export_tuning(file) == 1
    TABLE.forget()
    monkeypatch.setenv("FUSER_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert kernel_of(definition()) != best
    assert fuser.import_tuning(file) == 1
    assert kernel_of(definition()) == best
    TABLE.forget()
    assert kernel_of(definition()) == best
    monkeypatch.setenv("FUSER_CACHE", "off")
    TABLE.forget()
    assert fuser.import_tuning(file) == 1
    assert kernel_of(definition()) == best


def test_what_is_no_such_file(tmp_path: Path) -> None:
    file = tmp_path / "records"
    with pytest.raises(InputRuntimeError) as error:
        fuser.export_tuning(file)
    assert error.value.message == (
        "there are no tuning records: fd.execute(inputs, tune=True) makes them, and `fuser tune SCRIPT`"
    )
    data = TUNING_FILE.to_bytes((RECORD,))
    length = len(data) - data.index(b"\n") - 1
    for wrong, why in (
        (b"", "it is no file of fuser"),
        (data[:-5], f"it has {length - 5} bytes of {length}"),
        (
            data.replace(b"fuser tuning %d " % SCHEMA, b"fuser tuning 0 "),
            f"it has format 0, and this version of fuser reads format {SCHEMA}",
        ),
        (TUNING_FILE.to_bytes(()), "it has none"),
        (TUNING_FILE.to_bytes(("x",)), "it holds something else"),
        (
            TUNING_FILE.to_bytes((replace(RECORD, schema=0),)),
            f"it has schema 0, and this version of fuser reads schema {SCHEMA}",
        ),
        (TUNING_FILE.to_bytes((replace(RECORD, digest="x"),)), "its digest is wrong: something in it was changed"),
    ):
        file.write_bytes(wrong)
        with pytest.raises(InputValueError) as wrong_file:
            fuser.import_tuning(file)
        assert wrong_file.value.message.removeprefix(f"{file} cannot be loaded as ").split(": ", 1)[1] == why
    with pytest.raises(OSError, match="none"):
        fuser.import_tuning(tmp_path / "none")
    assert TABLE.all() == ()


def test_the_text_names_candidates_fates_and_the_winner() -> None:
    assert record_text(RECORD) == (
        "# tuned on H200 for t0 Float [8]\n"
        "# segment 0: t1\n"
        "         4.00 us  proposed\n"
        "->       2.00 us  unroll 2 instead of 1\n"
        "            -     nothing  spills: 16 bytes\n"
    )
