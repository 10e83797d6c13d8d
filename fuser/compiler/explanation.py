"""`Explanation`: the text of every stage of one compilation, as `fd.explain` gives it."""

from __future__ import annotations

import html
import re

from fuser import options
from fuser.errors import InputTypeError, InputValueError
from fuser.missing_names import KnownNames, says_instead
from fuser.records import record
from fuser.tracebacks import short_traceback

# `s1.kernel.07-insert_syncs.py` is the form `s1.kernel` after a pass; `s1.kernel.cu` is none.
_AFTER_A_PASS = re.compile(r"(.*)\.\d+-\w+\.py")


_TEXT = "explanation.stage('kernel.cu') is the text of a stage, and explanation.stages has all by name"


@says_instead(_TEXT, items=_TEXT)
@record
class Explanation:
    """Every stage of one compilation.

    stages  stage name -> text, in order: `fusion.py`, the fusion after each pass, `segments.py`, `params.py`, ...

    `stage(name)` is the text of what a name or pattern selects, `str()` the stages that changed something; passes that left
    their input as it was are only named there. `repr()` is short, and a notebook shows each stage behind its name.
    """

    stages: dict[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", KnownNames(self.stages, self._no_stage))

    def _no_stage(self, name: object) -> str:
        like = options.like_stages(name, self.stages) if isinstance(name, str) else ""
        return f"no stage is called {name!r}; {like}the stages are {options.stage_list(self.stages)}"

    @short_traceback
    def stage(self, name: str) -> str:
        """The text of the stage called `name`.

        `name` is what FUSER_DUMP takes: a full name (`kernel.cu`, `s1.kernel.cu` of the second segment), the name of a pass
        (`insert_syncs`), or a pattern with `*`. Where it selects several stages, each text has its stage's name in front.

        Raises InputTypeError for what is no text, InputValueError, with the names that there are, if it selects none.
        """
        if not isinstance(name, str):
            raise InputTypeError(
                f"stage(): name is a text, got {type(name).__name__}; the stages are {options.stage_list(self.stages)}"
            )
        # A full name selects its stage alone, whatever else is spelled like it.
        selected = {name} & self.stages.keys() or options.select_stages([name], tuple(self.stages))
        if not selected:
            raise InputValueError(self._no_stage(name))
        texts = [_under_its_name(n, text) for n, text in self.stages.items() if n in selected]
        return self.stages[next(iter(selected))] if len(texts) == 1 else "\n".join(texts)

    def changed(self) -> tuple[str, ...]:
        """Names of the stages but those of passes that left the fusion, or the kernel, as it was before them."""
        before: dict[str, str] = {}
        names: list[str] = []
        for name, text in self.stages.items():
            form = _form(name)
            if before.get(form) != text:
                names.append(name)
            before[form] = text
        return tuple(names)

    def __str__(self) -> str:
        changed = set(self.changed())
        parts: list[str] = []
        unchanged: list[str] = []
        for name, text in self.stages.items():
            if name not in changed:
                unchanged.append(name)
                continue
            parts += _named_only(unchanged)
            unchanged = []
            parts.append(_under_its_name(name, text))
        return "\n".join([*parts, *_named_only(unchanged)])

    def __repr__(self) -> str:
        kernels = sum(name.endswith("kernel.cu") for name in self.stages)
        return (
            f"<Explanation: {kernels} {'kernel' if kernels == 1 else 'kernels'}, {len(self.stages)} stages, "
            f'{len(self.changed())} of them changed something; print() it, or .stage("kernel.cu")>'
        )

    def _repr_html_(self) -> str:
        """The stages for a notebook: one line each that opens."""
        changed = set(self.changed())
        return "\n".join(
            f"<details><summary><code>{html.escape(name)}</code></summary><pre>{html.escape(text)}</pre></details>"
            if name in changed
            else f"<div><code>{html.escape(name)}</code> (unchanged)</div>"
            for name, text in self.stages.items()
        )


def _form(name: str) -> str:
    """What a stage shows: `kernel` for the kernel after any pass, `fusion` for the fusion before and after passes."""
    after_a_pass = _AFTER_A_PASS.fullmatch(name)
    return name.removesuffix(".py") if after_a_pass is None else after_a_pass[1]


def _under_its_name(name: str, text: str) -> str:
    return f"=== {name} ===\n{text.rstrip()}\n"


def _named_only(names: list[str]) -> list[str]:
    return [f"=== unchanged: {', '.join(names)} ===\n"] if names else []
