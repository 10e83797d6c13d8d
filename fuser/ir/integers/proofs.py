"""Claims that lowering rests on, and a second opinion on them: FUSER_VERIFY=proofs.

Grammar
    log    := ProofLog([claim])
    claim  := Claim(pass_name, what, left, relation, right, premises, decision)
              left relation right holds for all values of the symbols within their ranges for which the premises hold;
              with a `decision`, that condition is true exactly where left relation right holds
    term   := Int | (op, term, term)            op := + | * | // | %     evaluated as written, no rule applied
    relation := "==" | "<" | "|"                left | right: right divides left

Lowering logs a claim wherever it lets the integer rules cancel, decide or divide: the index of each group step by step, the
offset of each access, extents of splits and merges, dropped and kept predicates, hoisted tests, vector starts. Each step's
claim is about the results of the steps before, so together they say that the simplified index equals the unsimplified one.

Every claim is evaluated on many assignments of the symbols, corners of their ranges first, and a counterexample is an
InternalError. Where it can be decided, it is also proved with SymPy: a claim becomes polynomials that must be nonnegative;
an index enters with both ends of its range (the polynomial is affine in it), an extent as its least value plus a rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fuser.errors import InternalError
from fuser.ir.integers.integers import (
    Compare,
    Cond,
    FloorDiv,
    Int,
    Max,
    Min,
    Mod,
    Symbol,
    SymbolQuotient,
    conjuncts,
    exclusive_or,
)
from fuser.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping

Operator = Literal["+", "*", "//", "%", "^"]
Relation = Literal["==", "<", "|"]
Term: TypeAlias = "Int | tuple[Operator, Term, Term]"

# Assignments that every claim is evaluated on.
_ASSIGNMENTS = 160
# Cases one proof may split into before SymPy is given up on.
_PROOF_STEPS = 400


@record
class Claim:
    """See the grammar."""

    pass_name: str
    what: str
    left: Term
    relation: Relation
    right: Term
    premises: tuple[Cond, ...] = ()
    decision: Cond | None = None

    def __str__(self) -> str:
        text = f"{term_text(self.left)} {self.relation} {term_text(self.right)}"
        if self.decision is not None:
            text = f"({self.decision}) iff {text}"
        given = f", given {' and '.join(map(str, self.premises))}" if self.premises else ""
        return f"{self.what}: {text}{given}"


@dataclass(slots=True)
class ProofLog:
    """Claims in order of first mention, each once; `verdicts` says how each was confirmed once they are checked."""

    claims: dict[Claim, None] = field(default_factory=dict)
    verdicts: dict[Claim, str] = field(default_factory=dict)

    def add(self, claim: Claim) -> None:
        """Note a claim."""
        self.claims.setdefault(claim)

    def text(self) -> str:
        """One line a claim, with its verdict."""
        lines = [f"# {len(self.claims)} claims, {sum(v == 'proved' for v in self.verdicts.values())} proved by SymPy"]
        current = ""
        for claim in self.claims:
            if claim.pass_name != current:
                current = claim.pass_name
                lines.append(f"\n# {current}")
            lines.append(f"{self.verdicts.get(claim, 'unchecked'):10} {claim}")
        return "\n".join(lines) + "\n"


def check_proofs(log: ProofLog, *, seed: int = 0) -> None:
    """Confirm every claim. Raises InternalError naming the pass, the claim and the values for which it is false."""
    symbols = _closure(s for claim in log.claims for s in _claim_symbols(claim))
    samples = _Samples(symbols, seed)
    for claim in log.claims:
        names = {s.name for s in _claim_symbols(claim)}
        tried = 0
        for values in samples.assignments:
            if not names <= values.keys():
                continue  # a loop over nothing: what is said about its index is empty
            outcome = _holds(claim, values)
            if outcome is False:
                shown = ", ".join(f"{n}={values[n]}" for n in sorted(names))
                raise InternalError(
                    f"{claim.pass_name} claims what is not so: {claim}\n  for {shown}", pass_name=claim.pass_name
                )
            tried += outcome is True
        log.verdicts[claim] = "proved" if _Prover().proves(claim) else f"{tried} tried"


def counterexample(claim: Claim, *, seed: int = 0) -> dict[str, int] | None:
    """Values of the symbols for which a claim is false, or None if none of those tried is one."""
    symbols = _claim_symbols(claim)
    names = {s.name for s in symbols}
    for values in _Samples(_closure(symbols), seed).assignments:
        if names <= values.keys() and _holds(claim, values) is False:
            return {name: values[name] for name in sorted(names)}
    return None


# --- terms ------------------------------------------------------------------------------------------------------------


def term_text(term: Term) -> str:
    """The term as written."""
    if isinstance(term, Int):
        return str(term) if len(term.terms) + (term.constant != 0) <= 1 else f"({term})"
    op, a, b = term
    return f"({term_text(a)} {op} {term_text(b)})"


def _term_symbols(term: Term) -> frozenset[Symbol]:
    return term.symbols if isinstance(term, Int) else _term_symbols(term[1]) | _term_symbols(term[2])


def _claim_symbols(claim: Claim) -> frozenset[Symbol]:
    found = _term_symbols(claim.left) | _term_symbols(claim.right)
    for condition in claim.premises:
        found |= condition.symbols
    return found if claim.decision is None else found | claim.decision.symbols


def _value(term: Term, values: Mapping[str, int]) -> int:
    if isinstance(term, Int):
        return term.evaluate(values)
    op, left, right = term
    a, b = _value(left, values), _value(right, values)
    match op:
        case "+":
            return a + b
        case "*":
            return a * b
        case "//":
            return a // b
        case "%":
            return a % b
        case "^":
            return a ^ b


def _holds(claim: Claim, values: Mapping[str, int]) -> bool | None:
    """Whether a claim is true of some values; None where it says nothing about them."""
    try:
        if not all(p.evaluate(values) for p in claim.premises):
            return None
        a, b = _value(claim.left, values), _value(claim.right, values)
        match claim.relation:
            case "==":
                holds = a == b
            case "<":
                holds = a < b
            case "|":
                holds = a % b == 0
    except ZeroDivisionError:
        return None  # divisors are at least 1 by contract: an extent of 0 has no index
    return holds if claim.decision is None else holds is claim.decision.evaluate(values)


# --- assignments ------------------------------------------------------------------------------------------------------


def _closure(symbols: Iterable[Symbol]) -> list[Symbol]:
    """Symbols and those that bound them, bounds first."""
    found: dict[Symbol, None] = {}

    def visit(s: Symbol) -> None:
        if s in found:
            return
        if s.below is not None:
            for inner in sorted(s.below.symbols, key=lambda x: x.order):
                visit(inner)
        found[s] = None

    for s in sorted(symbols, key=lambda x: x.order):
        visit(s)
    return list(found)


class _Samples:
    """Assignments by symbol name. Symbols of one name are one quantity, which meets the ranges of all of them."""

    def __init__(self, symbols: Sequence[Symbol], seed: int) -> None:
        import random  # a check, not a part of every compilation

        rng = random.Random(seed)
        self.rng = rng
        by_name: dict[str, list[Symbol]] = {}
        for s in symbols:
            by_name.setdefault(s.name, []).append(s)
        # A name stands where the last of its symbols does: behind everything that bounds one of them.
        last = {s.name: i for i, s in enumerate(symbols)}
        self.groups = sorted(by_name.values(), key=lambda group: last[group[0].name])
        self.assignments = [self._assignment(k) for k in range(_ASSIGNMENTS)]

    def _assignment(self, number: int) -> dict[str, int]:
        """Values for all symbols that can have one; the first assignments are corners."""
        values: dict[str, int] = {}
        style = ("low", "high", "mixed")[min(number, 2)]
        for group in self.groups:
            value = self._choose(group, values, style)
            if value is not None:
                values[group[0].name] = value
        return values

    def _choose(self, group: Sequence[Symbol], values: Mapping[str, int], style: str) -> int | None:
        low, high, step = 0, None, 1
        for s in group:
            low = max(low, s.lo) if s.lo is not None else low
            tops = [] if s.hi is None else [s.hi]
            if s.below is not None:
                if not {x.name for x in s.below.symbols} <= values.keys():
                    return None
                try:
                    tops.append(s.below.evaluate(values) - 1)
                except ZeroDivisionError:
                    return None
            for top in tops:
                high = top if high is None else min(high, top)
            step = max(step, s.multiple)
        first = -(-low // step)
        if high is None or high > 1 << 22:
            # An extent: nothing bounds it. Small ones meet every corner; powers of two and their neighbours, vectors.
            rng = self.rng
            size = rng.choice(
                (0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 64, 100, 127, 128, 129, 255, 256, 1000, 1024, 4096)
            )
            size = {"low": 1, "high": 4096}.get(style, size if rng.random() < 0.7 else rng.randrange(1 << 14))
            return max(first, size) * step
        last = high // step
        if last < first:
            return None
        draw = {"low": 0.0, "high": 0.99}.get(style, self.rng.random())
        return (first if draw < 0.25 else last if draw > 0.65 else self.rng.randint(first, last)) * step


# --- SymPy ------------------------------------------------------------------------------------------------------------


class _Prover:
    """One proof. Atoms of integer expressions become SymPy symbols; what bounds them is taken from their definitions."""

    def __init__(self) -> None:
        import sympy

        self.sympy = sympy
        self.names: dict[Int | str, Any] = {}
        self.atoms: dict[Any, Int] = {}
        # Least values that hold because some index below the atom exists.
        self.least: dict[Int, int] = {}
        self.steps = _PROOF_STEPS

    def proves(self, claim: Claim) -> bool:
        """Whether SymPy confirms a claim; False only says that this way does not decide it."""
        if claim.decision is not None:
            return self._decides(claim)
        for s in _closure(_claim_symbols(claim)):
            self._exists(s)
        left, right = claim.left, claim.right
        match claim.relation:
            case "==":
                return self._equal(left, right)
            case "<":
                goal = self._polynomial(right) - self._polynomial(left) - 1
                return self._nonnegative(goal) or any(
                    self._nonnegative(goal - self._polynomial(p.operand))
                    for premise in claim.premises
                    for p in conjuncts(premise)
                    if isinstance(p, Compare) and p.kind == ">="
                )
            case "|":
                if not isinstance(left, Int) or not isinstance(right, Int) or not right.is_const:
                    return False
                return self._zero(self._polynomial(left) - right.value * self._polynomial(left // right))

    def _decides(self, claim: Claim) -> bool:
        """The decision is `operand >= 0` for what the relation says, up to a positive factor and rounding."""
        decision = claim.decision
        if not isinstance(decision, Compare) or decision.kind != ">=" or claim.relation != "<":
            return False
        operand = self._polynomial(decision.operand)
        rest = self._polynomial(claim.right) - self._polynomial(claim.left) - 1
        if self._zero(operand - rest):
            return True
        # Where rest = f * operand + r and 0 <= r < f, one is negative where the other is.
        scale, terms = (self.sympy.expand(p).as_coefficients_dict() for p in (operand, rest))
        factors = {n / scale[m] for m, n in terms.items() if m != 1 and scale[m] != 0}
        return any(
            self._nonnegative(rest - f * operand) and self._nonnegative(f - 1 - rest + f * operand)
            for f in sorted(f for f in factors if f.is_Integer and f > 1)
        )

    def _equal(self, left: Term, right: Term) -> bool:
        if not isinstance(right, tuple) or right[0] not in ("//", "%"):
            return self._zero(self._polynomial(left) - self._polynomial(right))
        op, x, d = right
        if isinstance(left, (FloorDiv, Mod)) and left.numerator is x and left.divisor is d:
            return isinstance(left, FloorDiv) is (op == "//")  # nothing was cancelled
        # x = q*d + r with 0 <= r < d says both; the quotient is a witness, whoever found it.
        if op == "//":
            quotient = left
        elif isinstance(x, Int) and isinstance(d, Int):
            quotient = x // d
        else:
            return False
        rest = self._polynomial(x) - self._polynomial(quotient) * self._polynomial(d)
        if op == "%" and not self._zero(rest - self._polynomial(left)):
            return False
        return self._nonnegative(rest) and self._nonnegative(self._polynomial(d) - 1 - rest)

    # --- polynomials over atoms ---

    def _polynomial(self, term: Term) -> Any:
        if isinstance(term, tuple):
            op, a, b = term
            if op == "+":
                return self._polynomial(a) + self._polynomial(b)
            if op == "*":
                return self._polynomial(a) * self._polynomial(b)
            return self._polynomial(_value_free(op, a, b))
        result: Any = self.sympy.Integer(term.constant)
        for monomial, coefficient in term.terms:
            result += self.sympy.Mul(coefficient, *(self._atom(factor) for factor in monomial))
        return result

    def _atom(self, atom: Int) -> Any:
        # One name is one quantity, whatever each of its symbols knows about it.
        key: Int | str = atom.name if isinstance(atom, Symbol) else atom
        found = self.names.get(key)
        if found is None:
            found = self.names[key] = self.sympy.Symbol(f"a{len(self.names)}", integer=True)
            self.atoms[found] = atom
        return found

    def _exists(self, s: Symbol) -> None:
        """An index of the loop over `below` exists, so that `below` is at least one more than the least index."""
        bound = s.below
        if bound is None or s.lo is None or len(bound.terms) != 1 or bound.constant > 0:
            return
        monomial, coefficient = bound.terms[0]
        if len(monomial) == 1 and coefficient > 0:
            least = -(-(s.lo + 1 - bound.constant) // coefficient)
            self.least[monomial[0]] = max(least, self.least.get(monomial[0], least))

    def _least(self, atom: Int) -> int | None:
        """A constant that the atom is never below."""
        lows = [n for n in (atom.lo, self.least.get(atom)) if n is not None]
        return max(lows, default=None)

    def _lows(self, atom: Int) -> list[Any]:
        """Polynomials that the atom is never below; each of them serves."""
        found: list[Any] = []
        least = self._least(atom)
        if least is not None:
            found.append(self.sympy.Integer(least))
        match atom:
            case FloorDiv() if atom.divisor.is_const:
                d = atom.divisor.value
                found.append((self._polynomial(atom.numerator) - (d - 1)) / d)
            case Max():
                found += [self._polynomial(a) for a in atom.arguments]
            case _:
                pass
        return found

    def _highs(self, atom: Int) -> list[Any]:
        """Polynomials that the atom is never above; each of them serves."""
        found: list[Any] = [] if atom.hi is None else [self.sympy.Integer(atom.hi)]
        match atom:
            case Symbol(below=Int() as below):
                found.insert(0, self._polynomial(below) - 1)
            case SymbolQuotient() if atom.symbol.below is not None:
                found.insert(0, (self._polynomial(atom.symbol.below) - 1) / atom.symbol.multiple)
            case Mod():
                found.insert(0, self._polynomial(atom.divisor) - 1)
            case FloorDiv() if atom.divisor.is_const:
                found.insert(0, self._polynomial(atom.numerator) / atom.divisor.value)
            case Min():
                found += [self._polynomial(a) for a in atom.arguments]
            case _:
                pass
        return found

    # --- decisions ---

    def _zero(self, polynomial: Any) -> bool:
        return self.sympy.expand(polynomial) == 0

    def _nonnegative(self, polynomial: Any) -> bool:
        """Whether a polynomial over atoms is nonnegative within their bounds."""
        self.steps -= 1
        if self.steps < 0:
            return False
        polynomial = self.sympy.expand(polynomial)
        symbols = sorted(polynomial.free_symbols, key=lambda x: (-self.atoms[x].rank, str(x)))
        if not symbols:
            return bool(polynomial >= 0)
        if self._shifted(polynomial, symbols):
            return True
        for x in symbols:
            if self.sympy.degree(polynomial, x) != 1:
                continue
            # Affine in x: least at an end of its range, at the lower one where the slope says so.
            lows, highs = self._lows(self.atoms[x]), self._highs(self.atoms[x])
            slope = polynomial.coeff(x, 1)
            rises = (slope.is_Number and slope >= 0) or (not highs and self._nonnegative(slope))
            falls = (slope.is_Number and slope <= 0) or (not lows and self._nonnegative(-slope))
            at_low = falls or any(self._nonnegative(polynomial.subs(x, low)) for low in lows)
            at_high = rises or any(self._nonnegative(polynomial.subs(x, high)) for high in highs)
            if at_low and at_high:
                return True
            if lows and highs:
                return False
        return False

    def _shifted(self, polynomial: Any, symbols: Sequence[Any]) -> bool:
        """Every coefficient is nonnegative once each atom is its least value plus a rest."""
        moved: dict[Any, Any] = {}
        for x in symbols:
            least = self._least(self.atoms[x])
            if least is None:
                return False
            moved[x] = x + least
        shifted = self.sympy.Poly(polynomial.subs(moved, simultaneous=True), *symbols)
        return all(c >= 0 for c in shifted.coeffs())


def _value_free(op: Operator, a: Term, b: Term) -> Int:
    """A division or xor inside a sum: the integer rules' own result, which the claim of the step that made it is about."""
    assert isinstance(a, Int)
    assert isinstance(b, Int)
    return exclusive_or(a, b) if op == "^" else a // b if op == "//" else a % b


__all__ = ["Claim", "ProofLog", "Relation", "Term", "check_proofs", "counterexample", "term_text"]
