"""Claims are checked: false ones are caught by values, true ones proved by SymPy where that can decide."""

import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import InternalError
from fuser.ir.integers.integers import TRUE, Int, ceil_div, const, less, maximum, minimum, symbol
from fuser.ir.integers.proofs import Claim, ProofLog, check_proofs, term_text
from fuser.lowering.pipeline import lower_fusion
from tests.fuzzing.random_schedules import generate

N, M = symbol("n"), symbol("m")
U = symbol("u", multiple=8)
I, J = symbol("i", below=N), symbol("j", 0, 127)  # noqa: E741
K = symbol("k", below=M)
BLOCK = symbol("b", below=ceil_div(N, 128))


def verdict(claim: Claim) -> str:
    log = ProofLog()
    log.add(claim)
    check_proofs(log)
    return log.verdicts[claim]


def claim(left, relation, right, **more) -> Claim:
    return Claim("some_pass", "a claim", left, relation, right, **more)


TRUE_CLAIMS = [
    claim(I, "==", ("//", I * 128 + J, const(128))),
    claim(J, "==", ("%", I * 128 + J, const(128))),
    claim(I, "==", ("//", I * M + K, M)),
    claim(K, "==", ("%", I * M + K, M)),
    claim(I * M + K, "==", ("+", ("*", I, M), K)),
    claim(I * M + K, "<", N * M),
    claim(BLOCK, "<", ceil_div(N, 128)),
    claim(ceil_div(N, 128), "==", ("//", ("+", N, const(127)), const(128))),
    claim(BLOCK, "<", ceil_div(N, 128), premises=(less(BLOCK * 128 + J, N),)),
    claim(BLOCK * 128 + J, "<", N, decision=less(BLOCK * 128 + J, N)),
    claim(J * 4 + symbol("l", 0, 3), "<", N * 4, decision=less(J, N)),
    claim(U, "|", const(8)),
    claim(U * 3 + 16, "|", const(8)),
    claim(minimum(I, M), "<", N),
    claim(I, "<", maximum(N, M)),
    claim(const(-1), "<", I - 0),
]


@pytest.mark.parametrize("true", TRUE_CLAIMS, ids=str)
def test_true_claims_are_proved(true):
    assert verdict(true) == "proved"


FALSE_CLAIMS = [
    claim(I + 1, "==", ("//", I * 128 + J, const(128))),
    claim(I, "==", ("//", I * 127 + J, const(127))),
    claim(J, "==", ("%", I * 127 + J, const(127))),
    claim(I * M + K, "<", N * M - 1),
    claim(BLOCK * 128 + J, "<", N),
    claim(J, "<", const(127)),
    claim(N, "<", M),
    claim(N, "|", const(8)),
    claim(U, "|", const(16)),
    claim(BLOCK * 128 + J, "<", N, decision=less(BLOCK * 128 + J, N + 1)),
    claim(BLOCK * 128 + J, "<", N, decision=TRUE),
    claim(J * 4 + symbol("l", 0, 4), "<", N * 4, decision=less(J, N)),
    claim(J * 4 + symbol("l", 0, 3), "<", N * 4 - 1, decision=less(J, N)),
    claim(BLOCK + 1, "<", ceil_div(N, 128), premises=(less(BLOCK * 128 + J, N),)),
    claim(ceil_div(N, 128), "==", ("//", N, const(128))),
]


@pytest.mark.parametrize("false", FALSE_CLAIMS, ids=str)
def test_false_claims_are_refuted(false):
    with pytest.raises(InternalError, match="some_pass claims what is not so: a claim: ") as caught:
        verdict(false)
    assert caught.value.pass_name == "some_pass"
    assert "\n  for " in str(caught.value)


def test_a_loop_over_nothing_says_nothing():
    nothing = symbol("z", below=const(0))
    assert verdict(claim(nothing, "<", const(-5))).endswith("tried")


def test_what_sympy_does_not_decide_is_tried_on_values():
    # A remainder by a symbol is bounded by it, and no rule here relates it to its numerator.
    assert verdict(claim((I * I + K) % M, "<", I * I + M)) in ("proved", "160 tried")
    assert verdict(claim((I * 3) % M, "<", I * 3 + 1)).endswith(" tried")


def test_symbols_of_one_name_are_one_quantity():
    wide, narrow = symbol("t", 0, 1023), symbol("t", 0, 127)
    assert verdict(claim(wide, "==", narrow)) == "proved"
    assert verdict(claim(wide, "<", narrow + 1)) == "proved"


def test_text():
    assert term_text(("+", ("*", I, M), K + 1)) == "((i * m) + (k + 1))"
    log = ProofLog()
    log.add(claim(I, "<", N))
    log.add(claim(I, "<", N))
    assert log.text() == "# 1 claims, 0 proved by SymPy\n\n# some_pass\nunchecked  a claim: i < n\n"
    check_proofs(log)
    assert log.text() == "# 1 claims, 1 proved by SymPy\n\n# some_pass\nproved     a claim: i < n\n"


# --- lowering ---------------------------------------------------------------------------------------------------------


def test_claims_of_random_schedules_hold():
    claims = proved = 0
    for seed in range(30):
        case = generate(seed)
        log = ProofLog()
        try:
            lower_fusion(case.schedule, case.facts, proofs=log)
        except InternalError:
            raise
        except Exception:
            continue
        assert log.verdicts.keys() == log.claims.keys()
        claims += len(log.claims)
        proved += sum(v == "proved" for v in log.verdicts.values())
    assert claims > 1000
    # The rest are mostly renamed tests with divisions on both sides.
    assert proved > 0.9 * claims


def test_a_wrong_cancellation_is_caught(monkeypatch):
    """Lowering whose integer rules forgot a remainder."""
    from fuser.lowering.loop_nests import indexing

    class Forgetful(indexing.Indexer):
        def _quotient(self, group, is_outer, index, extent):
            right = index // extent if is_outer else index % extent
            wrong: Int = right if is_outer else index
            return self._logged(group, wrong, ("//" if is_outer else "%", index, extent))

    monkeypatch.setattr("fuser.lowering.loop_nests.nest_predicates.Indexer", Forgetful)
    caught = 0
    for seed in range(40):
        case = generate(seed)
        try:
            lower_fusion(case.schedule, case.facts, proofs=ProofLog())
        except InternalError as error:
            caught += "claims what is not so" in str(error) and error.pass_name == "build_loop_nests"
        except Exception:
            continue
    assert caught


def test_a_wrongly_dropped_predicate_is_caught(monkeypatch):
    monkeypatch.setattr("fuser.lowering.loop_nests.nest_predicates.prove_less", lambda a, b: True)
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(fd.ops.sin(x))
    from fuser.ir.schedule.schedule import ScheduleBuilder

    s = ScheduleBuilder(fd.fusion.ir_fusion)
    s.split("t1", 1, 128)
    with pytest.raises(InternalError, match="dropped predicate of t1"):
        lower_fusion(s, frozenset(), proofs=ProofLog())


def test_explain_shows_the_proofs(monkeypatch):
    import numpy as np

    monkeypatch.setenv("FUSER_VERIFY", "proofs")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(fd.ops.sum(fd.ops.exp(x), [1]))
    stages = fd.explain([np.ones((5, 300), np.float32)], file=False).stages
    assert "# build_loop_nests" in stages["proofs.txt"]
    assert "proved" in stages["proofs.txt"]
    monkeypatch.delenv("FUSER_VERIFY")
    assert "proofs.txt" not in fd.explain([np.ones((5, 300), np.float32)], file=False).stages
