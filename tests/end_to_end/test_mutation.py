"""Every barrier, fence, predicate, initialisation and semaphore reset of the corpus is needed, and its absence is noticed."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.end_to_end.mutation import MAY_BE_SILENT, ORDERS, Judge, Mutant, Verdict, What, describe, mutants
from tests.fusions.kernel_corpus import CORPUS, Case
from tests.judging import oracle
from tests.judging.harness import NARROW, Lowered, assert_same, run

LISTED = Path(__file__).with_name("equivalent_mutants.txt")
FAMILIES = (
    "exchange",
    "two reductions",
    "last block",
    "broadcast back",
    "chained",
    "scan",
    "welford",
    "unswitch",
    "rfactor",
    "grid wait",
    "group",
)


@cache
def lowered(case: Case) -> Lowered:
    return Lowered.of(case.make(), frozenset([NARROW]))


def listed() -> set[tuple[str, str]]:
    """(case, what is removed) of the equivalent mutants on file; each line has a reason."""
    found: set[tuple[str, str]] = set()
    for line in LISTED.read_text().splitlines():
        if line and not line.startswith("#"):
            case, key, reason = line.split(" | ", 2)
            assert reason.strip()
            found.add((case, key))
    return found


def test_every_family_has_five_kernels() -> None:
    counts = Counter(case.family for case in CORPUS)
    assert all(counts[family] >= 5 for family in FAMILIES), counts
    assert len({case.name for case in CORPUS}) == len(CORPUS)


@pytest.mark.in_turns
@pytest.mark.parametrize("case", CORPUS, ids=lambda c: c.name)
def test_unmutated_kernel_is_right_and_raises_no_alarm(case: Case) -> None:
    kernel = lowered(case)
    for shapes in case.shapes:
        for order in range(ORDERS):
            inputs = case.inputs(kernel.fusion, shapes, order)
            expected = oracle.evaluate(kernel.fusion, inputs)
            for name, value in run(kernel, inputs, seed=order).check().items():
                assert_same(value, expected[name], name, 0.0 if case.whole else 1e-5)


@pytest.mark.in_turns
@pytest.mark.parametrize("case", CORPUS, ids=lambda c: c.name)
def test_every_mutant_is_noticed(case: Case) -> None:
    """All but those on file as equivalent, and all of these are."""
    judge = Judge(case, lowered(case))
    known = {key for name, key in listed() if name == case.name}
    equivalent: set[str] = set()
    for mutant in mutants(lowered(case).kernel):
        verdict, evidence = judge.verdict(mutant, mutant.key in known)
        if mutant.what not in MAY_BE_SILENT:
            assert verdict is Verdict.reported, f"{verdict.value} {evidence}\n{describe(case, mutant)}"
        if verdict is Verdict.equivalent:
            equivalent.add(mutant.key)
            assert mutant.key in known, f"not needed, or not noticed:\n{describe(case, mutant)}"
    assert equivalent == known, "noticed after all: take these from the list"


def every_mutant() -> list[tuple[Case, Mutant]]:
    return [(case, mutant) for case in CORPUS for mutant in mutants(lowered(case).kernel)]


def test_few_predicates_are_equivalent() -> None:
    of_predicates = [(case.name, m.key) for case, m in every_mutant() if m.what is What.predicate]
    equivalent = sum(m in listed() for m in set(of_predicates))
    assert equivalent <= 0.05 * len(of_predicates), f"{equivalent} of {len(of_predicates)}"


def test_list_of_equivalent_mutants_is_current() -> None:
    assert listed() <= {(case.name, m.key) for case, m in every_mutant()}


def test_corpus_has_every_kind_of_mutant() -> None:
    kinds = Counter(m.what for _, m in every_mutant())
    assert all(kinds[what] >= 20 for what in What), kinds
