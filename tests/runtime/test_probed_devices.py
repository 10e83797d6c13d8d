"""What was measured of a GPU serves devices of that kind, where the options ask for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fuser.errors import InputValueError
from fuser.ir.device_info import H200
from fuser.runtime.probed_devices import as_probed, keep_probed

PROBED = replace(
    H200,
    memory_bytes_per_ns=4000.0,
    rates=replace(H200.rates, clock_ghz=1.6),
    latencies=replace(H200.latencies, l2_ns=170.0),
)


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUSER_CACHE", "on")
    monkeypatch.setenv("FUSER_CACHE_DIR", str(tmp_path))


def test_it_is_taken_where_options_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep_probed(H200, PROBED)
    assert as_probed(H200) == H200
    monkeypatch.setenv("FUSER_MACHINE", "probed")
    assert as_probed(H200) == PROBED


def test_it_serves_devices_that_report_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_MACHINE", "probed")
    other = replace(H200, name="another")
    assert as_probed(H200) == H200
    keep_probed(H200, PROBED)
    assert as_probed(other) == other
    assert as_probed(replace(H200, sm_count=66)).latencies == H200.latencies


def test_nothing_is_kept_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_CACHE", "off")
    monkeypatch.setenv("FUSER_MACHINE", "probed")
    assert not keep_probed(H200, PROBED)
    assert as_probed(H200) == H200


def test_other_words_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_MACHINE", "fast")
    with pytest.raises(InputValueError, match="FUSER_MACHINE='fast' is not valid: expected one of preset, probed"):
        as_probed(H200)
