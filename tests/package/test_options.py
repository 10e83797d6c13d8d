"""The options table: every row parses what it says, and everything unknown is an error that lists what is known."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fuser import options
from fuser.errors import InputRuntimeError, InputValueError


def test_rows_are_named_after_their_variable() -> None:
    for row in options.OPTIONS:
        assert row.env == "FUSER_" + row.name.upper()
        assert row.doc.endswith(".")
        assert row.expects
    assert len({row.env for row in options.OPTIONS}) == len(options.OPTIONS)


@pytest.mark.parametrize("row", options.OPTIONS, ids=lambda row: row.name)
def test_unset_and_empty_give_the_default(row: options.Option[object]) -> None:
    assert row.get({}) == row.default
    assert row.get({row.env: "  "}) == row.default


@pytest.mark.parametrize(
    ("row", "text", "value"),
    [
        (options.DEVICE, "simulator", "simulator"),
        (options.DEVICE, "cuda:1", "cuda:1"),
        (options.DUMP, "kernel.cu, host.py,", ("kernel.cu", "host.py")),
        (options.DUMP_DIR, "/tmp/x", "/tmp/x"),
        (options.VERIFY, "passes,proofs", frozenset({"passes", "proofs"})),
        (options.FAULT, "expand_collectives", "expand_collectives"),
        (options.ENABLE, "fast_math", frozenset({"fast_math"})),
        (options.LOG, "Debug", "debug"),
        (options.EXPECT_NVRTC, "13.0", (13, 0)),
    ],
)
def test_accepted(row: options.Option[object], text: str, value: object) -> None:
    assert row.get({row.env: text}) == value


@pytest.mark.parametrize(
    ("row", "text", "message"),
    [
        (options.DEVICE, "gpu", "FUSER_DEVICE='gpu' is not valid: expected simulator, cuda or cuda:<index>"),
        (options.VERIFY, "all", "FUSER_VERIFY='all' is not valid: 'all' is not known; known are passes, proofs"),
        (
            options.VERIFY,
            "pases",
            "FUSER_VERIFY='pases' is not valid: 'pases' is not known; did you mean passes? known are passes, proofs",
        ),
        (options.LOG, "loud", "FUSER_LOG='loud' is not valid: expected one of error, warning, info, debug"),
        (options.EXPECT_NVRTC, "13", "FUSER_EXPECT_NVRTC='13' is not valid: expected major.minor, as in 13.0"),
    ],
)
def test_refused(row: options.Option[object], text: str, message: str) -> None:
    with pytest.raises(InputValueError) as caught:
        row.get({row.env: text})
    assert str(caught.value) == message


def test_unknown_variable_lists_the_known_ones() -> None:
    known = ", ".join(sorted(row.env for row in options.OPTIONS))
    with pytest.raises(InputValueError) as caught:
        options.check_environment({"FUSER_DMUP": "1", "HOME": "/root"})
    assert (
        str(caught.value)
        == f"Unknown option in the environment: FUSER_DMUP; did you mean FUSER_DUMP? known are {known}"
    )


def test_first_use_of_an_option_reports_unknown_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_names_checked", False)
    monkeypatch.setenv("FUSER_DMUP", "1")
    with pytest.raises(InputValueError, match="FUSER_DMUP"):
        options.DUMP.get()


@pytest.mark.parametrize(
    ("enable", "disable", "message"),
    [
        (["fma"], None, "Unrecognized enable_option: fma; it is one of _disable_options"),
        (["fastmath"], None, "Unrecognized enable_option: fastmath; did you mean fast_math?"),
        (None, ["fuse"], "Unrecognized disable_option: fuse"),
    ],
)
def test_unknown_names_of_a_call(enable: Any, disable: Any, message: str) -> None:
    with pytest.raises(InputRuntimeError) as caught:
        options.check_option_lists(enable, disable)
    assert str(caught.value) == message


def test_every_listed_name_is_accepted() -> None:
    lists = options.check_option_lists(list(options.ENABLE_OPTIONS), list(options.DISABLE_OPTIONS))
    assert len(lists.enable) == 25
    assert len(lists.disable) == 22
    assert lists.code_options == ("disable:fma", "enable:fast_math", "enable:kernel_lineinfo")
    assert lists.nvrtc_flags == ("--fmad=false", "--use_fast_math", "-lineinfo")


def test_lists_without_effect_on_code() -> None:
    assert options.check_option_lists(None, []).code_options == ()
    assert options.check_option_lists(["kernel_profile"], ["nvtx"]).code_options == ()


def test_a_call_adds_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_ENABLE", "kernel_lineinfo")
    monkeypatch.setenv("FUSER_DISABLE", "fma")
    assert options.check_option_lists(["fast_math"], None).nvrtc_flags == (
        "--fmad=false",
        "--use_fast_math",
        "-lineinfo",
    )


STAGES = ("fusion.py", "fusion.01-cse.py", "kernel.07-expand_collectives.py", "kernel.cu", "kernel.cubin", "host.py")


@pytest.mark.parametrize(
    ("patterns", "selected"),
    [
        (["all"], set(STAGES)),
        (["fusion"], {"fusion.py"}),
        (["kernel.cu", "host.py"], {"kernel.cu", "host.py"}),
        (["expand_collectives"], {"kernel.07-expand_collectives.py"}),
        (["kernel.expand_collectives"], {"kernel.07-expand_collectives.py"}),
        (["kernel.*"], {"kernel.07-expand_collectives.py", "kernel.cu", "kernel.cubin"}),
        (["fusion.py", "segments.py"], {"fusion.py"}),
        ([], set()),
    ],
)
def test_select_stages(patterns: list[str], selected: set[str]) -> None:
    assert options.select_stages(patterns, STAGES) == selected


def test_unknown_stage_lists_the_stages() -> None:
    with pytest.raises(InputValueError) as caught:
        options.check_stages(["s2.kernel.cu", "cse", "kernel.ptx"], STAGES)
    assert str(caught.value) == (
        "FUSER_DUMP: no stage is called 'kernel.ptx'; did you mean 'kernel.cu'? the stages are fusion.py, kernel.cu, "
        "kernel.cubin, host.py, and those after the passes cse, expand_collectives"
    )
    assert options.stage_list(["fusion.py", "host.py"]) == "fusion.py, host.py"


def test_logger_prints_what_is_asked_for(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("fuser")
    handlers, level = list(log.handlers), log.level
    try:
        monkeypatch.setenv("FUSER_LOG", "debug")
        options.logger()
        options.logger()
        assert len(log.handlers) == len(handlers) + (not handlers)
        with caplog.at_level("DEBUG", "fuser"):
            options.check_option_lists(None, ["nvtx"])
        assert "option nvtx is accepted and has no effect" in caplog.text
    finally:
        log.handlers[:] = handlers
        log.setLevel(level)
