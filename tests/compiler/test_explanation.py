"""What `fd.explain` prints, and how one stage of it is found."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.compiler.explanation import Explanation
from fuser.errors import FuserError, InputValueError


@pytest.fixture(scope="module")
def softmax() -> Explanation:
    """Softmax in two kernels: what a `segment_set` parts."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        e = fd.ops.segment_set(fd.ops.exp(x - fd.ops.max(x, dim=1, keepdim=True)))
        fd.add_output(e / fd.ops.sum(e, dim=1, keepdim=True))
    return fd.explain([np.ones((4, 40), np.float32)], file=False)


MADE_UP = Explanation(
    {
        "fusion.py": "a",
        "fusion.00-first.py": "a",
        "fusion.01-second.py": "b",
        "segments.py": "b",
        "s0.kernel.00-nests.py": "b",
        "s0.kernel.01-third.py": "b",
        "s0.kernel.02-fourth.py": "b",
        "s1.kernel.00-nests.py": "<c>",
        "s1.kernel.01-third.py": "d",
        "s1.kernel.cu": "d",
    }
)


def test_passes_that_change_nothing_are_only_named() -> None:
    assert set(MADE_UP.stages) - set(MADE_UP.changed()) == {
        "fusion.00-first.py",
        "s0.kernel.01-third.py",
        "s0.kernel.02-fourth.py",
    }
    text = str(MADE_UP)
    assert "=== fusion.py ===\na\n\n=== unchanged: fusion.00-first.py ===\n\n=== fusion.01-second.py ===\nb\n" in text
    assert "=== unchanged: s0.kernel.01-third.py, s0.kernel.02-fourth.py ===" in text
    assert "=== s1.kernel.01-third.py ===\nd\n" in text


def test_every_changed_stage_of_a_compilation_is_printed(softmax: Explanation) -> None:
    printed = re.findall("^=== (.*) ===$", str(softmax), re.MULTILINE)
    assert tuple(name for name in printed if not name.startswith("unchanged: ")) == softmax.changed()
    named = [name for line in printed if line.startswith("unchanged: ") for name in line[11:].split(", ")]
    assert {*named, *softmax.changed()} == set(softmax.stages)
    assert len(named) > 10


def test_a_stage_by_name(softmax: Explanation) -> None:
    assert softmax.stage("s1.kernel.cu") == softmax.stages["s1.kernel.cu"]
    both = softmax.stage("kernel.cu")
    assert both == "\n".join(f"=== s{k}.kernel.cu ===\n{softmax.stages[f's{k}.kernel.cu']}" for k in range(2))
    (syncs,) = [name for name in softmax.stages if re.fullmatch(r"s1\.kernel\.\d+-insert_syncs\.py", name)]
    assert softmax.stages[syncs].rstrip() in softmax.stage("insert_syncs")
    assert softmax.stage("fusion.py") == softmax.stages["fusion.py"]
    assert MADE_UP.stage("second") == "b"


def test_a_stage_that_is_not_there(softmax: Explanation) -> None:
    with pytest.raises(InputValueError, match=r"^no stage is called 'proof'; the stages are fusion\.py, "):
        softmax.stage("proof")


def test_repr_is_one_line(softmax: Explanation) -> None:
    text = repr(softmax)
    assert text.startswith("<Explanation: 2 kernels, ")
    assert "\n" not in text
    assert len(text) < 120


def test_a_notebook_shows_each_stage_behind_its_name() -> None:
    shown = MADE_UP._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert shown.count("<details>") == len(MADE_UP.changed())
    assert "<summary><code>s1.kernel.00-nests.py</code></summary><pre>&lt;c&gt;</pre>" in shown
    assert "<div><code>fusion.00-first.py</code> (unchanged)</div>" in shown


def test_a_stage_spelled_almost_right() -> None:
    explanation = Explanation({"fusion.py": "", "kernel.10-insert_syncs.py": "", "kernel.cu": ""})
    for name, meant in (
        ("kernel.cuda", "kernel.cu"),
        ("insert_sync", "insert_syncs"),
        ("kernel", "kernel.cu"),
        ("ptx", "kernel.cu"),
        ("cuda", "kernel.cu"),
    ):
        text = (
            f"no stage is called {name!r}; did you mean {meant!r}? the stages are fusion.py, kernel.cu, and those after the "
            "passes insert_syncs"
        )
        with pytest.raises(InputValueError) as caught:
            explanation.stage(name)
        assert caught.value.message == text
        with pytest.raises(KeyError) as by_name:
            explanation.stages[name]
        assert isinstance(by_name.value, FuserError)
        assert by_name.value.message == text


def test_stages_are_a_dict_otherwise() -> None:
    stages = Explanation({"fusion.py": "a", "kernel.cu": "b"}).stages
    assert stages == {"fusion.py": "a", "kernel.cu": "b"}
    assert stages.get("cuda") is None
    assert "cuda" not in stages
    assert type(pickle.loads(pickle.dumps(stages))) is type(copy.copy(stages)) is dict
