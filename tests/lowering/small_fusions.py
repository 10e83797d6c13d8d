"""Small fusions and kernel queries that tests of loop nests share."""

from __future__ import annotations

from fuser.ir.fusion.fusion import Fusion, Tensor
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.kernel.kernel import If, Kernel, Role, Stmt, walk
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder

Float, Half, Int, Int32, Double = DataType.Float, DataType.Half, DataType.Int, DataType.Int32, DataType.Double


def predicates(kernel: Kernel, role: Role = Role.predicate) -> list[str]:
    """The conditions of a role, in order."""
    return [str(s.condition) for s in walk(kernel.body) if isinstance(s, If) and s.role is role]


def of_type(kernel: Kernel, kind: type[Stmt]) -> list[Stmt]:
    return [s for s in walk(kernel.body) if isinstance(s, kind)]


def negated(*shape: int, dtype: DataType = Float) -> tuple[Fusion, Tensor, Tensor]:
    """out = -x; fusion, x, out."""
    b = FusionBuilder()
    x = b.input_tensor(dtype, shape)
    out = b.pointwise("neg", [x], dtype)
    b.add_output(out)
    return b.freeze(), x, out


def copied(*shape: int, dtype: DataType = Float) -> tuple[ScheduleBuilder, str, str, str]:
    """out = -x with copies at both ends; schedule, names of the loaded copy, the computed value, the output."""
    fusion, x, out = negated(*shape, dtype=dtype)
    s = ScheduleBuilder(fusion)
    loaded = s.cache_after(x.name)
    computed = s.cache_before(out.name)
    return s, loaded, computed, out.name
