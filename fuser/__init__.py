"""fuser: tensor programs written in Python become few CUDA kernels that run at the memory limit.

    from fuser import DataType, FusionDefinition

    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Half)
        fd.add_output(fd.ops.sum(fd.ops.exp(x), dims=[1]))
    (y,) = fd.execute([array])

Names are loaded on first use: importing the package loads next to nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

_DEFINITION = "fuser.frontend.definition"
_DEFINE = "fuser.frontend.define"
_FUSION = "fuser.frontend.fusion_handle"
_HANDLES = "fuser.frontend.handles"
_ENUMS = "fuser.ir.enums"
_ERRORS = "fuser.errors"
_PARAMETERS = "fuser.frontend.heuristic_params"

# name -> module that defines it.
EXPORTS: dict[str, str] = {
    "FusionDefinition": _DEFINITION,
    "define_tensor": _DEFINE,
    "define_scalar": _DEFINE,
    "Fusion": _FUSION,
    "FusionGuard": _FUSION,
    "Statement": _HANDLES,
    "Val": _HANDLES,
    "TensorView": _HANDLES,
    "IterDomain": _HANDLES,
    "TensorDomain": _HANDLES,
    "Expr": _HANDLES,
    "Split": _HANDLES,
    "Merge": _HANDLES,
    "BroadcastOp": _HANDLES,
    "ReshapeOp": _HANDLES,
    "SqueezeOp": _HANDLES,
    "translate_fusion": "fuser.frontend.translate",
    "compute_tensor_descriptor": "fuser.frontend.tensor_descriptor",
    "validate_with_auto_inferred_outputs": "fuser.frontend.validate",
    "get_val_tolerances": "fuser.frontend.validate",
    "LRUCache": "fuser.frontend.lru_cache",
    "LruFusionCache": "fuser.frontend.lru_cache",
    "version": "fuser.release",
    "__version__": "fuser.release",
    "DataType": "fuser.ir.dtypes",
    **dict.fromkeys(
        (
            "ParallelType",
            "MemoryType",
            "LoadStoreOpType",
            "CacheOp",
            "IdMappingMode",
            "SchedulerType",
            "CommunicatorBackend",
            "MatmulTilingStrategy",
            "MatmulBufferingLoopLevel",
            "MatmulCircularBufferingStrategy",
            "MatmulTileRasterizationOrder",
            "MmaMacroArch",
        ),
        _ENUMS,
    ),
    **dict.fromkeys(
        (
            "HeuristicParams",
            "PointwiseParams",
            "ReductionParams",
            "MatmulParams",
            "GemmTile",
            "MatMulTileOptions",
            "CircularBufferOptions",
            "SupportedVectorization",
            "ClusterDims",
            "MmaMacro",
            "MmaMacroEncode",
        ),
        _PARAMETERS,
    ),
    "CompileParams": "fuser.compiler.compile_params",
    "LaunchParams": "fuser.runtime.launch_params",
    "FusionExecutorCache": "fuser.compiler.executor_cache",
    "KernelExecutor": "fuser.compiler.kernel_executor",
    "KernelCompiler": "fuser.compiler.kernel_compiler",
    "CompiledKernel": "fuser.runtime.compiled_kernel",
    "RtcKernel": "fuser.runtime.rtc_kernel",
    "HostProgram": "fuser.host_ir.program",
    "extent": "fuser.host_ir.expressions",
    "manual_seed": "fuser.runtime.generator",
    **dict.fromkeys(("Allocate", "Deallocate", "Alias", "Copy", "Fill", "LaunchKernel"), "fuser.host_ir.instructions"),
    "DeviceInfo": "fuser.ir.device_info",
    **dict.fromkeys(
        (
            "FuserError",
            "DefinitionError",
            "InputError",
            "SchedulingError",
            "CompilationError",
            "LaunchError",
            "VariantUnavailableError",
            "NoDeviceError",
            "InternalError",
        ),
        _ERRORS,
    ),
}

# Submodules by the short names that users write.
SUBMODULES: dict[str, str] = {
    "ops": "fuser.frontend.ops",
    "schedule": "fuser.frontend.schedule",
}

__all__ = sorted([*EXPORTS, *SUBMODULES])  # type: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from fuser.errors import (
        CompilationError as CompilationError,
    )
    from fuser.errors import (
        DefinitionError as DefinitionError,
    )
    from fuser.errors import (
        FuserError as FuserError,
    )
    from fuser.errors import (
        InputError as InputError,
    )
    from fuser.errors import (
        InternalError as InternalError,
    )
    from fuser.errors import (
        LaunchError as LaunchError,
    )
    from fuser.errors import (
        NoDeviceError as NoDeviceError,
    )
    from fuser.errors import (
        SchedulingError as SchedulingError,
    )
    from fuser.errors import (
        VariantUnavailableError as VariantUnavailableError,
    )
    from fuser.frontend.define import define_scalar as define_scalar
    from fuser.frontend.define import define_tensor as define_tensor
    from fuser.frontend.definition import FusionDefinition as FusionDefinition
    from fuser.frontend.fusion_handle import Fusion as Fusion
    from fuser.frontend.fusion_handle import FusionGuard as FusionGuard
    from fuser.frontend.handles import TensorView as TensorView
    from fuser.frontend.handles import Val as Val
    from fuser.ir.dtypes import DataType as DataType
    from fuser.ir.enums import MemoryType as MemoryType
    from fuser.ir.enums import ParallelType as ParallelType
    from fuser.ir.enums import SchedulerType as SchedulerType
    from fuser.release import __version__ as __version__
    from fuser.release import version as version
    from fuser.runtime.generator import manual_seed as manual_seed


def __getattr__(name: str) -> Any:
    module = EXPORTS.get(name)
    if module is not None:
        value = getattr(importlib.import_module(module), name)
    elif name in SUBMODULES:
        value = importlib.import_module(SUBMODULES[name])
    else:
        raise AttributeError(f"module 'fuser' has no attribute {name!r}")
    globals()[name] = value
    return value


class _Package(ModuleType):
    """Keeps the name `schedule` for users: importing from the folder of schedulers would bind it to that folder."""

    @property
    def schedule(self) -> ModuleType:
        """The scheduling functions, `fd.sched`."""
        return importlib.import_module(SUBMODULES["schedule"])

    @schedule.setter
    def schedule(self, folder: ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*globals(), *EXPORTS, *SUBMODULES})
