"""Every option of the project: one table of environment variables, one of enable/disable names.

Grammar
    environment := (FUSER_<NAME>=<text>)*          unknown names and unknown values are errors
    list        := item (',' item)*                blanks around items are dropped, empty items too
    enable      := list of names in ENABLE_OPTIONS (FUSER_ENABLE, `_enable_options=[...]` of one call)
    disable     := list of names in DISABLE_OPTIONS (FUSER_DISABLE, `_disable_options=[...]`)

To add an option, add a row. `OPTION.get()` parses the variable anew at each call (about a microsecond, no cache to go
stale), so read options when something is built, never on the path of a launch.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from fuser.errors import InputRuntimeError, InputTypeError, InputValueError

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable, Mapping, Sequence

T = TypeVar("T")


def environment_reader() -> tuple[Callable[[Any], object], Callable[[str], Any]]:
    """(what a variable has, by its key; key of a name): the dictionary within `os.environ` answers ten times as fast.

    What is there is as the system has it, None where there is nothing.
    """
    encoded: Any = getattr(os.environ, "_data", None)
    encode: Any = getattr(os.environ, "encodekey", None)
    return (os.environ.get, str) if encoded is None or encode is None else (encoded.get, encode)


_raw, _encode = environment_reader()
_keys: dict[str, Any] = {}


def _text_of(name: str) -> str:
    """`os.environ.get(name, "")`; most variables are not set."""
    key = _keys.get(name)
    if key is None:
        key = _keys[name] = _encode(name)
    return "" if _raw(key) is None else os.environ.get(name, "")


PREFIX = "FUSER_"


class Option(NamedTuple, Generic[T]):
    """A row of the options table.

    `parse` turns the variable's text into the value and raises ValueError saying what it expects; `expects` is that
    sentence for the documentation. An unset or empty variable gives `default`.
    """

    name: str
    env: str
    parse: Callable[[str], T]
    default: T
    expects: str
    doc: str

    def text(self) -> str:
        """What the environment of this process says; empty if nothing."""
        return _text_of(self.env)

    def get(self, environ: Mapping[str, str] | None = None) -> T:
        """The value in force. Raises InputValueError naming the variable if its text is none of the accepted ones."""
        if environ is None:
            _check_names_once()
            text = _text_of(self.env)
        else:
            text = environ.get(self.env, "")
        if not text.strip():
            return self.default
        try:
            return self.parse(text.strip())
        except ValueError as error:
            raise InputValueError(f"{self.env}={text!r} is not valid: {error}") from None


# ---------------------------------------------------------------- value types


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _parse_text(text: str) -> str:
    return text


def _parse_path(text: str) -> str:
    return os.path.expanduser(text)


def _parse_device(text: str) -> str:
    if re.fullmatch(r"simulator|cuda(:\d+)?", text) is None:
        raise ValueError("expected simulator, cuda or cuda:<index>")
    return text


def _parse_verify(text: str) -> frozenset[str]:
    return _members(text, VERIFY_CHECKS)


def _parse_log(text: str) -> str:
    if text.lower() not in LOG_LEVELS:
        raise ValueError(f"expected one of {', '.join(LOG_LEVELS)}")
    return text.lower()


def _parse_machine(text: str) -> str:
    if text not in MACHINES:
        raise ValueError(f"expected one of {', '.join(MACHINES)}")
    return text


def _parse_traceback(text: str) -> str:
    if text not in TRACEBACKS:
        raise ValueError(f"expected one of {', '.join(TRACEBACKS)}")
    return text


def _parse_tune(text: str) -> str:
    if text.lower() not in TUNE_MODES:
        raise ValueError(f"expected one of {', '.join(TUNE_MODES)}")
    return text.lower()


def _parse_switch(text: str) -> bool:
    if text.lower() not in SWITCH:
        raise ValueError(f"expected one of {', '.join(SWITCH)}")
    return SWITCH[text.lower()]


def _parse_bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMGT]?)", text.upper())
    if found is None or int(found[1]) == 0:
        raise ValueError("expected a number of bytes, as in 1000000, 500M or 2G")
    return int(found[1]) * 1024 ** " KMGT".index(found[2] or " ")


def _parse_version(text: str) -> tuple[int, int]:
    if re.fullmatch(r"\d+\.\d+", text) is None:
        raise ValueError("expected major.minor, as in 13.0")
    major, minor = text.split(".")
    return int(major), int(minor)


def _parse_enable(text: str) -> frozenset[str]:
    return _members(text, ENABLE_OPTIONS)


def _parse_disable(text: str) -> frozenset[str]:
    return _members(text, DISABLE_OPTIONS)


def _members(text: str, known: Iterable[str]) -> frozenset[str]:
    names = _parse_list(text)
    for name in names:
        if name not in known:
            from difflib import get_close_matches

            like = get_close_matches(name, list(known), 1, 0.8)
            meant = f"did you mean {like[0]}? " if like else ""
            raise ValueError(f"{name!r} is not known; {meant}known are {', '.join(sorted(known))}")
    return frozenset(names)


VERIFY_CHECKS: dict[str, str] = {
    "passes": "check the IR after every pass against what that pass ensures; a stage that fails on a segment is an error",
    "proofs": "re-prove with SymPy every cancelled index, dropped predicate and claimed divisibility",
}

SWITCH = {"on": True, "off": False, "1": True, "0": False}

TRACEBACKS = ("short", "full")
MACHINES = ("preset", "probed")

TUNE_MODES = ("off", "use", "on", "later")

LOG_LEVELS = ("error", "warning", "info", "debug")


# ---------------------------------------------------------------- the table

DEVICE: Option[str | None] = Option(
    "device",
    "FUSER_DEVICE",
    _parse_device,
    None,
    "simulator, cuda or cuda:<index>",
    "Where NumPy inputs run. Unset: the current GPU if there is one, else the simulator.",
)
DUMP: Option[tuple[str, ...]] = Option(
    "dump",
    "FUSER_DUMP",
    _parse_list,
    (),
    "comma list of stage names; `*` matches any part, `all` is every stage",
    "Stages of the compilation to write out, by the names that fd.explain shows, such as kernel.cu.",
)
DUMP_DIR: Option[str] = Option(
    "dump_dir",
    "FUSER_DUMP_DIR",
    _parse_path,
    ".fuser_dump",
    "a folder",
    "Where FUSER_DUMP writes and where a failed compilation leaves its reproducer.",
)
VERIFY: Option[frozenset[str]] = Option(
    "verify",
    "FUSER_VERIFY",
    _parse_verify,
    frozenset(),
    "comma list of " + ", ".join(VERIFY_CHECKS),
    "; ".join(f"{name}: {doc}" for name, doc in VERIFY_CHECKS.items()) + ".",
)
FAULT: Option[str | None] = Option(
    "fault",
    "FUSER_FAULT",
    _parse_text,
    None,
    "the name of a pass",
    "Make that pass fail, to test how a failure of the compiler is reported.",
)
NVRTC: Option[str | None] = Option(
    "nvrtc",
    "FUSER_NVRTC",
    _parse_path,
    None,
    "a path of libnvrtc",
    "Use this NVRTC library instead of the newest one that the driver can run.",
)
ENABLE: Option[frozenset[str]] = Option(
    "enable",
    "FUSER_ENABLE",
    _parse_enable,
    frozenset(),
    "comma list of names in the enable table",
    "Enable options in force for every execution, before those of the call.",
)
DISABLE: Option[frozenset[str]] = Option(
    "disable",
    "FUSER_DISABLE",
    _parse_disable,
    frozenset(),
    "comma list of names in the disable table",
    "Disable options in force for every execution, before those of the call.",
)
LOG: Option[str] = Option(
    "log",
    "FUSER_LOG",
    _parse_log,
    "warning",
    " | ".join(LOG_LEVELS),
    "Least severe message that is printed to stderr: compiled or cached and how long, cache misses with their reason.",
)
TRACEBACK: Option[str] = Option(
    "traceback",
    "FUSER_TRACEBACK",
    _parse_traceback,
    "short",
    " | ".join(TRACEBACKS),
    "Frames of this package in the traceback of an error: none, or all; an InternalError always has all.",
)
CACHE: Option[bool] = Option(
    "cache",
    "FUSER_CACHE",
    _parse_switch,
    True,
    " | ".join(SWITCH),
    "Whether binaries and programs are kept on disk for later processes, and taken from there.",
)
CACHE_DIR: Option[str | None] = Option(
    "cache_dir",
    "FUSER_CACHE_DIR",
    _parse_path,
    None,
    "a folder that only you can write",
    "Where the disk cache lies. Unset: fuser under XDG_CACHE_HOME, else under ~/.cache.",
)
CACHE_SIZE: Option[int] = Option(
    "cache_size",
    "FUSER_CACHE_SIZE",
    _parse_bytes,
    2**30,
    "bytes; K, M, G and T multiply by powers of 1024",
    "How much the disk cache may hold; above it, what was used longest ago is taken away. Unset: 1G.",
)
TUNE: Option[str] = Option(
    "tune",
    "FUSER_TUNE",
    _parse_tune,
    "use",
    " | ".join(TUNE_MODES),
    "Parameters by measuring. on: first calls measure, as with tune=True; later: those after their candidates were compiled "
    "in the background do; use: what was measured before is used; off: not even that.",
)
PDL: Option[bool] = Option(
    "pdl",
    "FUSER_PDL",
    _parse_switch,
    True,
    " | ".join(SWITCH),
    "Whether kernels of a program start while the one before them ends (programmatic dependent launch; compute capability "
    "9.0 and later), from the next new sizes on. Results are the same either way.",
)
PROGRESS: Option[bool] = Option(
    "progress",
    "FUSER_PROGRESS",
    _parse_switch,
    True,
    " | ".join(SWITCH),
    "Whether compiling and tuning that take longer than two seconds say on a terminal how far they are.",
)
MACHINE: Option[str] = Option(
    "machine",
    "FUSER_MACHINE",
    _parse_machine,
    "preset",
    " | ".join(MACHINES),
    "What planning takes for a GPU's rates and latencies. preset: those known of its architecture; probed: those that `fuser "
    "doctor --probe` measured on it and kept on disk, if it did. Results may differ in how reductions round.",
)
EXPECT_NVRTC: Option[tuple[int, int] | None] = Option(
    "expect_nvrtc",
    "FUSER_EXPECT_NVRTC",
    _parse_version,
    None,
    "major.minor",
    "`fuser doctor` and the golden compile test fail unless this NVRTC is the one that gets loaded.",
)

OPTIONS: tuple[Option[object], ...] = tuple(
    cast("Option[object]", row) for row in list(globals().values()) if isinstance(row, Option)
)
"""Every row above, in the order written: the documentation, `check_environment` and `fuser doctor` read it."""


def check_environment(environ: Mapping[str, str] | None = None) -> None:
    """Raise InputValueError if any FUSER_* variable is unknown or holds a text that its row does not accept."""
    environ = os.environ if environ is None else environ
    _check_names(environ)
    for option in OPTIONS:
        option.get(environ)


def _check_names(environ: Mapping[str, str]) -> None:
    known = {option.env for option in OPTIONS}
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and name not in known)
    if unknown:
        from difflib import get_close_matches

        like = dict.fromkeys(close for name in unknown for close in get_close_matches(name, sorted(known), 1, 0.8))
        meant = f"did you mean {' and '.join(like)}? " if like else ""
        raise InputValueError(
            f"Unknown option{'s' if len(unknown) > 1 else ''} in the environment: {', '.join(unknown)}; {meant}"
            f"known are {', '.join(sorted(known))}"
        )


_names_checked = False


def _check_names_once() -> None:
    global _names_checked
    if not _names_checked:
        _check_names(os.environ)
        _names_checked = True


# ---------------------------------------------------------------- enable and disable names


class Toggle(NamedTuple):
    """A name that executions accept in their enable or disable list.

    `nvrtc_flag` is what it adds to the NVRTC options. A toggle with a flag changes generated code, so it is part of the
    cache key; one without has no meaning in this project and is accepted so that callers written for nvFuser run.
    """

    nvrtc_flag: str | None = None


_NO_MEANING = Toggle()

ENABLE_OPTIONS: dict[str, Toggle] = {
    "fast_math": Toggle("--use_fast_math"),
    "kernel_lineinfo": Toggle("-lineinfo"),
    **dict.fromkeys(
        (
            "cutlass_scheduler",
            "fuse_matmul",
            "fuse_multiple_matmuls",
            "host_ir_jit",
            "host_ir_lowering",
            "id_model_extra_validation",
            "insert_resharding_after",
            "io_to_lower_precision",
            "kernel_db",
            "kernel_debug",
            "kernel_profile",
            "memory_promotion",
            "multicast_protocol",
            "p2p_protocol",
            "p2p_transport",
            "reuse_zeroed_memory",
            "static_fusion_count",
            "tma_inner_persistent",
            "tma_pointwise",
            "tma_reduction",
            "wait_debugger",
            "warn_register_spill",
            "ws_normalization",
        ),
        _NO_MEANING,
    ),
}

DISABLE_OPTIONS: dict[str, Toggle] = {
    "fma": Toggle("--fmad=false"),
    **dict.fromkeys(
        (
            "compile_to_sass",
            "contig_indexing",
            "expr_simplify",
            "fallback",
            "greedy_scheduler",
            "grouped_grid_welford_outer_opt",
            "index_hoist",
            "infer_contiguity",
            "kernel_reuse",
            "magic_zero",
            "matmul_expr_eval",
            "multidevice",
            "nvrtc_caching",
            "nvtx",
            "parallel_compile",
            "predicate_elimination",
            "python_inline_definitions",
            "resize_scheduler",
            "reuse_mismatched_type_registers",
            "var_name_remapping",
            "welford_vectorization",
        ),
        _NO_MEANING,
    ),
}


class OptionLists(NamedTuple):
    """The enable and disable names in force for one execution: the environment's and the call's together."""

    enable: frozenset[str]
    disable: frozenset[str]

    @property
    def code_options(self) -> tuple[str, ...]:
        """The names that change generated code, sorted, as `enable:<name>` or `disable:<name>`: part of a cache key."""
        return tuple(sorted(name for name, toggle in self._toggles() if toggle.nvrtc_flag is not None))

    @property
    def nvrtc_flags(self) -> tuple[str, ...]:
        """What these names add to the NVRTC options, sorted."""
        return tuple(sorted(toggle.nvrtc_flag for _, toggle in self._toggles() if toggle.nvrtc_flag is not None))

    def _toggles(self) -> list[tuple[str, Toggle]]:
        return [
            *((f"enable:{name}", ENABLE_OPTIONS[name]) for name in self.enable),
            *((f"disable:{name}", DISABLE_OPTIONS[name]) for name in self.disable),
        ]


def _meant(name: str, known: Iterable[str], others: Iterable[str], other_list: str) -> str:
    """`; did you mean fast_math?`, or which list knows the name."""
    from difflib import get_close_matches

    if name in others:
        return f"; it is one of _{other_list}_options"
    like = get_close_matches(str(name), list(known), 1)
    return f"; did you mean {like[0]}?" if like else ""


def check_option_lists(enable: Iterable[str] | None, disable: Iterable[str] | None) -> OptionLists:
    """The lists of one execution on top of FUSER_ENABLE and FUSER_DISABLE; None is an empty list.

    Raises InputTypeError for one text, InputRuntimeError `Unrecognized enable_option: <x>` or
    `Unrecognized disable_option: <x>` for an unknown name. Names without meaning here are logged at debug level.
    """
    for what, names in (("_enable_options", enable), ("_disable_options", disable)):
        if isinstance(names, str):
            raise InputTypeError(f"{what} is a sequence of names, got the text {names!r}: write [{names!r}]")
    enabled = [] if enable is None else list(enable)
    disabled = [] if disable is None else list(disable)
    for name in enabled:
        if name not in ENABLE_OPTIONS:
            raise InputRuntimeError(
                f"Unrecognized enable_option: {name}{_meant(name, ENABLE_OPTIONS, DISABLE_OPTIONS, 'disable')}"
            )
    for name in disabled:
        if name not in DISABLE_OPTIONS:
            raise InputRuntimeError(
                f"Unrecognized disable_option: {name}{_meant(name, DISABLE_OPTIONS, ENABLE_OPTIONS, 'enable')}"
            )
    lists = OptionLists(ENABLE.get().union(enabled), DISABLE.get().union(disabled))
    for name in enabled + disabled:
        toggle = ENABLE_OPTIONS.get(name) or DISABLE_OPTIONS[name]
        if toggle.nvrtc_flag is None:
            logger().debug("option %s is accepted and has no effect", name)
    return lists


# ---------------------------------------------------------------- what the options steer


_AFTER_A_PASS = re.compile(r"(\w+)\.\d+-(\w+)\.py")


def select_stages(patterns: Iterable[str], stages: Sequence[str]) -> frozenset[str]:
    """The stages that FUSER_DUMP's items name.

    `stages` are full stage names (`kernel.07-expand_collectives.py`). An item is a full name, a pass's own name
    (`expand_collectives`), a name without its number and suffix (`kernel.expand_collectives`), a pattern with `*`, or
    `all`.
    """
    from fnmatch import fnmatchcase

    wanted = ["*" if pattern == "all" else pattern for pattern in patterns]
    return frozenset(s for s in stages if any(fnmatchcase(n, w) for n in _stage_spellings(s) for w in wanted))


def check_stages(patterns: Iterable[str], stages: Sequence[str]) -> None:
    """Raise InputValueError, listing the stages, for an item of FUSER_DUMP that names none of those there can be."""
    for pattern in patterns:
        if not select_stages([_without_segment(pattern)], stages):
            raise InputValueError(
                f"{DUMP.env}: no stage is called {pattern!r}; {like_stages(pattern, stages)}the stages are {stage_list(stages)}"
            )


def like_stages(name: str, stages: Iterable[str]) -> str:
    """`did you mean 'kernel.cu'? `, or nothing if no stage or pass is spelled like the name."""
    from difflib import get_close_matches

    spellings = [spelling for stage in stages for spelling in _stage_spellings(stage)]
    like = get_close_matches(name, spellings, n=1, cutoff=0.8)
    if not like and "kernel.cu" in spellings and re.search("cuda|kernel|code|source|ptx", name):
        like = ["kernel.cu"]
    return f"did you mean {like[0]!r}? " if like else ""


def stage_list(stages: Iterable[str]) -> str:
    """The stages as an error lists them: those after passes, of which there are many, by the passes' own names."""
    forms: list[str] = []
    passes: dict[str, None] = {}
    for stage in stages:
        *_, name = _stage_spellings(stage)
        if _AFTER_A_PASS.fullmatch(_without_segment(stage)):
            passes[name] = None
        else:
            forms.append(stage)
    return ", ".join(forms) + (f", and those after the passes {', '.join(passes)}" if passes else "")


def _without_segment(stage: str) -> str:
    return re.sub(r"^s\d+\.", "", stage)


def _stage_spellings(stage: str) -> tuple[str, ...]:
    """`s1.kernel.07-expand_collectives.py` -> itself, `kernel.expand_collectives`, `expand_collectives`."""
    plain = _without_segment(stage)
    numbered = _AFTER_A_PASS.fullmatch(plain)
    if numbered is None:
        return (stage, plain, plain.removesuffix(".py"))
    family, pass_name = numbered.groups()
    return (stage, f"{family}.{pass_name}", pass_name)


_logger: logging.Logger | None = None


def logger() -> logging.Logger:
    """The project's logger, `fuser`. If FUSER_LOG is set, it prints that level and above to stderr."""
    import logging

    global _logger
    result = _logger
    if result is None:
        result = _logger = logging.getLogger("fuser")
    if LOG.text() and not result.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("fuser %(levelname)s: %(message)s"))
        result.addHandler(handler)
        result.setLevel(LOG.get().upper())
    return result
