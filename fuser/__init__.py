"""fuser: tensor programs written in Python become few CUDA kernels that run at the memory limit.

    from fuser import DataType, FusionDefinition

    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Half)
        fd.add_output(fd.ops.sum(fd.ops.exp(x), dims=[1]))
    (y,) = fd.execute([array])

Names are loaded on first use: importing the package loads next to nothing. `__init__.pyi` lists them for type checkers.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

importlib.import_module("fuser.import_time")

_DEFINITION = "fuser.frontend.definition"
_DEFINE = "fuser.frontend.define"
_FUSION = "fuser.frontend.fusion_handle"
_HANDLES = "fuser.frontend.complete_handles"
_ENUMS = "fuser.ir.ops.enums"
_ERRORS = "fuser.errors"
_PARAMETERS = "fuser.frontend.heuristic_params"

# name -> module that has it.
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
    "execute_with_dtensors": "fuser.frontend.multidevice",
    "version": "fuser.release",
    "__version__": "fuser.release",
    "DataType": "fuser.ir.ops.dtypes",
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
    "Tuning": "fuser.compiler.tuning",
    "export_tuning": "fuser.compiler.tuning_record",
    "import_tuning": "fuser.compiler.tuning_record",
    "CompileParams": "fuser.compiler.compile_params",
    "LaunchParams": "fuser.runtime.kernels.launch_params",
    "FusionExecutorCache": "fuser.compiler.executor_cache",
    "KernelExecutor": "fuser.compiler.kernel_executor",
    "KernelCompiler": "fuser.compiler.kernel_compiler",
    "CompiledKernel": "fuser.runtime.kernels.compiled_kernel",
    "RtcKernel": "fuser.runtime.rtc_kernel",
    "HostProgram": "fuser.host_ir.program",
    **dict.fromkeys(
        ("extent", "stride", "scalar", "less", "less_equal", "equal", "not_equal", "all_of", "any_of"),
        "fuser.host_ir.instructions.expressions",
    ),
    "save": "fuser.host_ir.saved_programs",
    "load": "fuser.host_ir.saved_programs",
    "manual_seed": "fuser.runtime.generator",
    **dict.fromkeys(
        (
            "Allocate",
            "Deallocate",
            "Alias",
            "CallLibrary",
            "Copy",
            "Fill",
            "RequireDisjoint",
            "LaunchKernel",
            "SetStream",
            "RecordEvent",
            "WaitEvent",
            "Synchronize",
            "If",
            "Switch",
            "ForLoop",
        ),
        "fuser.host_ir.instructions.instructions",
    ),
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
    "multidevice": "fuser.frontend.multidevice",
}

__all__ = sorted([*EXPORTS, *SUBMODULES])  # type: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    module = EXPORTS.get(name)
    if module is not None:
        value = getattr(importlib.import_module(module), name)
    elif name in SUBMODULES:
        value = importlib.import_module(SUBMODULES[name])
    elif name.startswith("_") or _asked_by().startswith(("importlib.", "fuser.")):
        # Importing a submodule asks the package for its name first, and nobody reads what the answer says.
        raise AttributeError(f"module 'fuser' has no attribute {name!r}")
    else:
        from fuser.errors import FuserError, missing_from_module
        from fuser.frontend.package_advice import advice_on_package
        from fuser.tracebacks import shorten

        try:
            advice = advice_on_package(name, __all__)
            raise missing_from_module(f"module 'fuser' has no attribute {name!r}{advice}", name)
        except FuserError as error:
            shorten(error)
            raise
    globals()[name] = value
    return value


def _asked_by() -> str:
    """The module that asks for a name."""
    return sys._getframe(2).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage]


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
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})
