"""Write docs/ops.md, the page of ops, from the op table and the DSL's docstrings.

    python tools/generate_ops_page.py            writes the page
    python tools/generate_ops_page.py --check    exit code 1 if the page differs

A test runs the check, so an op that was added or changed appears on the page.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuser.frontend import ops
from fuser.frontend.factories import FACTORIES
from fuser.frontend.indexing_ops import INDEXING_OPS
from fuser.frontend.library_calls import LIBRARY_CALLS
from fuser.frontend.methods import METHODS
from fuser.frontend.random_ops import RANDOM_OPS
from fuser.frontend.reductions import REDUCTION_OPS
from fuser.frontend.reshape_ops import RESHAPE_OPS
from fuser.frontend.resize_ops import RESIZE_OPS
from fuser.frontend.shape_ops import SHAPE_OPS
from fuser.frontend.triangles import TRIANGLES
from fuser.ir.ops.approximate_ops import in_fusion
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import POINTWISE, REDUCTIONS, SCANS, DtypeRule, PointwiseOp

PAGE = Path(__file__).resolve().parent.parent / "docs" / "ops.md"

PROMOTION = """\
*The promoted dtype* of operands follows from their dtypes and from what they are: tensors with dims, tensors of rank 0,
scalars. Numbers are scalars: a Python bool is a Bool, an int an Int, a float a Double, a complex number a ComplexDouble.
So are sizes: `x.size(0)` is an Int.

- Operands that are all of one dtype keep it.
- Within each of these groups the result is the later of Bool, Int32, Int, Index, 16-bit floats, Float, Double. Half with
  BFloat16 is Float, and a scalar of 16 bits counts as Float. A complex dtype with Double or ComplexDouble gives
  ComplexDouble, else ComplexFloat. UInt64 does not mix with other integers.
- Tensors with dims decide over tensors of rank 0, and those over scalars: the lesser one counts only where it is of a
  higher kind (Bool < integer < float < complex), and then gives its dtype; a float with a lesser complex one gives the
  complex dtype of its own precision. So a Float tensor times 0.5 is Float, and an Int32 tensor plus 2 is Int32.

Unlike in torch, where such a number becomes float32:

| | dtype | instead |
| --- | --- | --- |
| an Int, Int32 or Bool tensor `x * 0.5` | Double | `x.float() * 0.5` |
| `ops.iota(n) * 0.5` | Double | `ops.iota(n, dtype=DataType.Float) * 0.5` |
| `ops.where(c, 1.0, 0.0)`, with two numbers | Double | `ops.where(c, 1.0, 0.0).float()` |

Where all operands are integers, `/`, `sqrt` and the other ops of result FLT give Float, in a program of Doubles as well:
`x.size(1) / 3`, `ops.sqrt(x.size(1))`. Of Double are `x.size(1) / 3.0`, `x.size(1) ** 0.5` and
`ops.sqrt(ops.cast(x.size(1), DataType.Double))`.""".splitlines()

BYTES = """\
There are no integers of 8 or 16 bits and no floats of 8 bits. Hand such arrays over as words of Int32: `a.view(np.int32)`,
in torch `a.view(torch.int32)`, of an array whose last dim is contiguous and a multiple of 4 bytes. In the fusion, for
`q` of shape [m, n] and `shift = ops.iota(4, 0, 8, DataType.Int32)`:

- uint8: `byte = (q.unsqueeze(-1) >> shift) & 255`, then `byte.float().reshape(m, 4 * n)`
- int8: `((q.unsqueeze(-1) << (24 - shift)) >> 24).float().reshape(m, 4 * n)`
- 8-bit floats: `table.index_select(byte.reshape(-1), 0)`, `table` an input of the 256 values
- back: `((y & 255) << shift).sum(-1, dtype=DataType.Int32)` of an Int32 tensor `y` of shape [m, n, 4]

`benchmarks/everyday/quantisation.py` does so for weights of 8 and 4 bits, and `packed_rgba_to_normalized` of
`benchmarks/everyday/vision.py` for images.""".splitlines()

DIVISION = """\
`lhs // rhs`, which has no name, is the quotient rounded toward minus infinity: of the promoted dtype for integers,
`floor(lhs / rhs)` for floats.

Integers wrap. Division of integers by 0 raises nothing: `div`, `mod`, `fmod` and `%` give -1 for Int32; for Int 4294967295
where lhs is in [0, 2**32), else -1; where they give -1, `//` gives -2. GPUs and the simulator agree.""".splitlines()

OTHERS = (*SHAPE_OPS, *RESHAPE_OPS, *RESIZE_OPS, *INDEXING_OPS, *FACTORIES, *RANDOM_OPS, *TRIANGLES)
KINDS = {"f": "floating", "i": "integer", "b": "Bool", "c": "complex", "u": "UInt64"}


def sentence(name: str) -> str:
    """The first sentence of an op's docstring, on one line."""
    return first_sentence(ops.OPS[name])


def first_sentence(op: Callable[..., Any]) -> str:
    paragraph = (op.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(paragraph.split())


def method_call(name: str, method: Callable[..., Any]) -> str:
    """How a method is called: its signature without the tensor."""
    parameters = str(inspect.signature(method)).partition(" -> ")[0].removeprefix("(arg: TensorView").removeprefix(", ")
    return f"`x.{name}({parameters}`"


def escaped(text: str) -> str:
    """Text for a table cell."""
    return text.replace("|", "\\|")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    return [*lines, *(f"| {' | '.join(map(escaped, row))} |" for row in rows)]


def call_of(row: PointwiseOp) -> str:
    """How the op is called, and its operator."""
    parameters = ("arg", "dtype") if row.name == "cast" else row.parameters
    symbol = f" `{row.symbol}`" if row.symbol else ""
    return f"`{row.name}({', '.join(parameters)})`{symbol}"


def bound_of(row: PointwiseOp) -> str:
    """The error bound of the table in ulp, for Float and Double."""
    if row.exact:
        return "exact"
    if "f" not in row.kinds:
        return "exact" if "c" not in row.kinds else ""
    return "/".join(f"{bound:g}" for bound in in_fusion(row).ulp)


def pointwise_rows() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in sorted(POINTWISE):
        row = POINTWISE[name]
        rows.append((call_of(row), "".join(row.kinds), row.rule.name, bound_of(row), row.doc))
    return rows


def page() -> str:
    """The whole page."""
    pointwise = table(("call", "operands", "result", "error", "what"), pointwise_rows())
    reductions = table(
        ("call", "operands", "what"),
        [
            (
                f"`{name}(arg, dims, keepdim=False{', dtype=Null' if row.widens else ''})`",
                row.kinds,
                row.doc,
            )
            for name, row in REDUCTIONS.items()
        ]
        + [
            (f"`{name}`", "f" if name == "welford" else "fc", sentence(name))
            for name in REDUCTION_OPS
            if name not in REDUCTIONS
        ],
    )
    scans = table(
        ("call", "operands", "what"),
        [(f"`{name}(arg, dim, init=None)`", row.kinds, row.doc) for name, row in SCANS.items()],
    )
    others = table(
        ("call", "what"),
        [(f"`{name}`", sentence(name)) for name in OTHERS],
    )
    calls = table(("call", "what"), [(f"`{name}`", sentence(name)) for name in LIBRARY_CALLS])
    elementwise = [n for n in ops.ELEMENTWISE if n not in POINTWISE]
    elementwise_table = table(("call", "what"), [(f"`{name}`", sentence(name)) for name in elementwise])
    unsupported = table(("call", "why"), [(f"`{name}`", why) for name, why in sorted(ops.UNSUPPORTED.items())])
    methods = table(
        ("call", "what"),
        [
            (method_call(name, method), first_sentence(method))
            for name, method in METHODS.items()
            if method is not ops.OPS.get(name)
        ],
    )
    supported = ", ".join(d.name for d in DataType if d.is_supported)
    defined = ", ".join(d.name for d in DataType if not d.is_supported and d is not DataType.Null)
    lines = [
        "# Ops",
        "",
        "Written by `tools/generate_ops_page.py` from `fuser/ir/ops/op_table.py` and the docstrings: not by hand.",
        "`help(fuser.ops.add)` shows the same, with the errors.",
        "",
        "## Dtypes",
        "",
        f"Tensors can be of dtype {supported}. Not yet: {defined}.",
        "",
        *PROMOTION,
        "",
        *BYTES,
        "",
        "## Pointwise",
        "",
        "Shapes are broadcast; operands of lower rank get size-1 dims on the left; scalars alone give a scalar. 16-bit floats",
        "are computed in Float. *error* is the bound in ulp for Float/Double, beyond correct rounding, that the tests hold",
        "the op to; 0 is correctly rounded, and so are quotients, reciprocals and roots on which a comparison, a rounding or",
        "an integer depends. A sign behind a call is the Python operator.",
        "",
        "*operands*: " + ", ".join(f"{k} {kind}" for k, kind in KINDS.items()) + ".",
        "",
        "*result* (the promoted dtype: see Dtypes):",
        "",
        *(f"- {rule.name}: {rule.value}" for rule in DtypeRule),
        "",
        *pointwise,
        "",
        *DIVISION,
        "",
        "Beside them:",
        "",
        *elementwise_table,
        "",
        "## Reductions",
        "",
        "Also called as `name(arg)` for all dims and `name(arg, dim, ...)` for one. 16-bit floats accumulate in Float and",
        "round once; `sum` and `prod` of Bool and Int32 are Int unless a dtype is asked for. Over no elements `sum` is 0,",
        "`prod` 1, `max` the least value of the dtype (-inf, False), `min` the greatest (inf, True), `mean` and `var` nan.",
        "",
        *reductions,
        "",
        "## Scans",
        "",
        "Element i of the result folds elements 0 to i along `dim`, and before them the scalar `init`, if one is given. The",
        "dtype is that of `arg`: integers are not widened, 16-bit floats accumulate in Float and are rounded per element.",
        "",
        *scans,
        "",
        "## Shapes, factories and random numbers",
        "",
        "The indices of `gather`, `index_select`, `take_along_axis` and `embedding_fwd` are not wrapped, and a GPU "
        "does not check",
        "them: what one outside of its dim reads is unspecified, and the device may refuse all that follows. The simulator",
        "(`FUSER_DEVICE=simulator`) names the op's line, the index and the range.",
        "",
        *others,
        "",
        "## Computed by a library",
        "",
        "torch computes these on tensors of torch, CuPy on other arrays of a GPU (`pip install 'fuser[cupy]'`), NumPy on the",
        "simulator. Pointwise ops and reductions on either side of one are fused as ever; `fd.explain` tells what was handed",
        "over.",
        "",
        *calls,
        "",
        "## Methods and subscripts",
        "",
        "An op whose first operand is a tensor is its method as well: `x.exp()`, `x.sum(1)`, `x.clamp(0.0, 6.0)`. Methods of",
        "a form of their own:",
        "",
        *methods,
        "",
        "`x.T` has all dims in reverse order, `x.mT` the last two swapped. `x.shape` is a tuple of the extents and `x.dtype`",
        "the dtype; both may be called (`x.shape()`).",
        "",
        "`x[1:, -1, None, ...]` takes parts: ints and integer scalars one element of a dim, which is dropped; slices a run of",
        "them, clamped to the extent, each a step of at least 1 behind the last (`x[:, 1::2]`); `None` is a new dim of",
        "extent 1. Negative positions count from the end. Negative steps are refused: `index_select` with",
        "`ops.iota(n, n - 1, -1)` reverses a dim of n elements. So are tensors: `index_select`, `take_along_axis` and `where`",
        "are for those.",
        "",
        "`==` and `!=` compare elements, as `eq` and `ne`; `is` says whether two names are one tensor, and tensors are keys by",
        "that.",
        "",
        "Where an argument is a dtype, a `DataType`, NumPy's name (`'float32'`), a dtype of NumPy, torch or JAX, or a Python",
        "type (`float` is Double) may stand; NumPy's numbers, integers and bools may stand for Python's.",
        "",
        "## Not supported yet",
        "",
        "These names exist and raise `NotSupportedError`.",
        "",
        *unsupported,
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write or check the page."""
    text = page()
    if arguments == ["--check"]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE.name} is not what its generator writes: python tools/generate_ops_page.py", file=sys.stderr)
        return 1
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
