"""fuser: tensor programs written in Python become few CUDA kernels that run at the memory limit.

    from fuser import DataType, FusionDefinition

    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Half)
        fd.add_output(fd.ops.sum(fd.ops.exp(x), dims=[1]))
    (y,) = fd.execute([array])

Names are loaded on first use: importing the package loads next to nothing. `__init__.pyi` lists them for type checkers.

Written by `tools/generate_stubs.py`: not by hand.
"""

from fuser.compiler.compile_params import CompileParams as CompileParams
from fuser.compiler.executor_cache import FusionExecutorCache as FusionExecutorCache
from fuser.compiler.kernel_compiler import KernelCompiler as KernelCompiler
from fuser.compiler.kernel_executor import KernelExecutor as KernelExecutor
from fuser.compiler.tuning import Tuning as Tuning
from fuser.compiler.tuning_record import export_tuning as export_tuning
from fuser.compiler.tuning_record import import_tuning as import_tuning
from fuser.errors import CompilationError as CompilationError
from fuser.errors import DefinitionError as DefinitionError
from fuser.errors import FuserError as FuserError
from fuser.errors import InputError as InputError
from fuser.errors import InternalError as InternalError
from fuser.errors import LaunchError as LaunchError
from fuser.errors import NoDeviceError as NoDeviceError
from fuser.errors import SchedulingError as SchedulingError
from fuser.errors import VariantUnavailableError as VariantUnavailableError
from fuser.frontend import multidevice as multidevice
from fuser.frontend import ops as ops
from fuser.frontend import schedule as schedule
from fuser.frontend.complete_handles import BroadcastOp as BroadcastOp
from fuser.frontend.complete_handles import Expr as Expr
from fuser.frontend.complete_handles import IterDomain as IterDomain
from fuser.frontend.complete_handles import Merge as Merge
from fuser.frontend.complete_handles import ReshapeOp as ReshapeOp
from fuser.frontend.complete_handles import Split as Split
from fuser.frontend.complete_handles import SqueezeOp as SqueezeOp
from fuser.frontend.complete_handles import Statement as Statement
from fuser.frontend.complete_handles import TensorDomain as TensorDomain
from fuser.frontend.complete_handles import TensorView as TensorView
from fuser.frontend.complete_handles import Val as Val
from fuser.frontend.define import define_scalar as define_scalar
from fuser.frontend.define import define_tensor as define_tensor
from fuser.frontend.definition import FusionDefinition as FusionDefinition
from fuser.frontend.fusion_handle import Fusion as Fusion
from fuser.frontend.fusion_handle import FusionGuard as FusionGuard
from fuser.frontend.heuristic_params import CircularBufferOptions as CircularBufferOptions
from fuser.frontend.heuristic_params import ClusterDims as ClusterDims
from fuser.frontend.heuristic_params import GemmTile as GemmTile
from fuser.frontend.heuristic_params import HeuristicParams as HeuristicParams
from fuser.frontend.heuristic_params import MatmulParams as MatmulParams
from fuser.frontend.heuristic_params import MatMulTileOptions as MatMulTileOptions
from fuser.frontend.heuristic_params import MmaMacro as MmaMacro
from fuser.frontend.heuristic_params import MmaMacroEncode as MmaMacroEncode
from fuser.frontend.heuristic_params import PointwiseParams as PointwiseParams
from fuser.frontend.heuristic_params import ReductionParams as ReductionParams
from fuser.frontend.heuristic_params import SupportedVectorization as SupportedVectorization
from fuser.frontend.lru_cache import LRUCache as LRUCache
from fuser.frontend.lru_cache import LruFusionCache as LruFusionCache
from fuser.frontend.multidevice import execute_with_dtensors as execute_with_dtensors
from fuser.frontend.tensor_descriptor import compute_tensor_descriptor as compute_tensor_descriptor
from fuser.frontend.translate import translate_fusion as translate_fusion
from fuser.frontend.validate import get_val_tolerances as get_val_tolerances
from fuser.frontend.validate import validate_with_auto_inferred_outputs as validate_with_auto_inferred_outputs
from fuser.host_ir.instructions.expressions import all_of as all_of
from fuser.host_ir.instructions.expressions import any_of as any_of
from fuser.host_ir.instructions.expressions import equal as equal
from fuser.host_ir.instructions.expressions import extent as extent
from fuser.host_ir.instructions.expressions import less as less
from fuser.host_ir.instructions.expressions import less_equal as less_equal
from fuser.host_ir.instructions.expressions import not_equal as not_equal
from fuser.host_ir.instructions.expressions import scalar as scalar
from fuser.host_ir.instructions.expressions import stride as stride
from fuser.host_ir.instructions.instructions import Alias as Alias
from fuser.host_ir.instructions.instructions import Allocate as Allocate
from fuser.host_ir.instructions.instructions import CallLibrary as CallLibrary
from fuser.host_ir.instructions.instructions import Copy as Copy
from fuser.host_ir.instructions.instructions import Deallocate as Deallocate
from fuser.host_ir.instructions.instructions import Fill as Fill
from fuser.host_ir.instructions.instructions import ForLoop as ForLoop
from fuser.host_ir.instructions.instructions import If as If
from fuser.host_ir.instructions.instructions import LaunchKernel as LaunchKernel
from fuser.host_ir.instructions.instructions import RecordEvent as RecordEvent
from fuser.host_ir.instructions.instructions import RequireDisjoint as RequireDisjoint
from fuser.host_ir.instructions.instructions import SetStream as SetStream
from fuser.host_ir.instructions.instructions import Switch as Switch
from fuser.host_ir.instructions.instructions import Synchronize as Synchronize
from fuser.host_ir.instructions.instructions import WaitEvent as WaitEvent
from fuser.host_ir.program import HostProgram as HostProgram
from fuser.host_ir.saved_programs import load as load
from fuser.host_ir.saved_programs import save as save
from fuser.ir.device_info import DeviceInfo as DeviceInfo
from fuser.ir.ops.dtypes import DataType as DataType
from fuser.ir.ops.enums import CacheOp as CacheOp
from fuser.ir.ops.enums import CommunicatorBackend as CommunicatorBackend
from fuser.ir.ops.enums import IdMappingMode as IdMappingMode
from fuser.ir.ops.enums import LoadStoreOpType as LoadStoreOpType
from fuser.ir.ops.enums import MatmulBufferingLoopLevel as MatmulBufferingLoopLevel
from fuser.ir.ops.enums import MatmulCircularBufferingStrategy as MatmulCircularBufferingStrategy
from fuser.ir.ops.enums import MatmulTileRasterizationOrder as MatmulTileRasterizationOrder
from fuser.ir.ops.enums import MatmulTilingStrategy as MatmulTilingStrategy
from fuser.ir.ops.enums import MemoryType as MemoryType
from fuser.ir.ops.enums import MmaMacroArch as MmaMacroArch
from fuser.ir.ops.enums import ParallelType as ParallelType
from fuser.ir.ops.enums import SchedulerType as SchedulerType
from fuser.release import __version__ as __version__
from fuser.release import version as version
from fuser.runtime.generator import manual_seed as manual_seed
from fuser.runtime.kernels.compiled_kernel import CompiledKernel as CompiledKernel
from fuser.runtime.kernels.launch_params import LaunchParams as LaunchParams
from fuser.runtime.rtc_kernel import RtcKernel as RtcKernel

EXPORTS: dict[str, str]
SUBMODULES: dict[str, str]

__all__ = [
    "Alias",
    "Allocate",
    "BroadcastOp",
    "CacheOp",
    "CallLibrary",
    "CircularBufferOptions",
    "ClusterDims",
    "CommunicatorBackend",
    "CompilationError",
    "CompileParams",
    "CompiledKernel",
    "Copy",
    "DataType",
    "Deallocate",
    "DefinitionError",
    "DeviceInfo",
    "Expr",
    "Fill",
    "ForLoop",
    "FuserError",
    "Fusion",
    "FusionDefinition",
    "FusionExecutorCache",
    "FusionGuard",
    "GemmTile",
    "HeuristicParams",
    "HostProgram",
    "IdMappingMode",
    "If",
    "InputError",
    "InternalError",
    "IterDomain",
    "KernelCompiler",
    "KernelExecutor",
    "LRUCache",
    "LaunchError",
    "LaunchKernel",
    "LaunchParams",
    "LoadStoreOpType",
    "LruFusionCache",
    "MatMulTileOptions",
    "MatmulBufferingLoopLevel",
    "MatmulCircularBufferingStrategy",
    "MatmulParams",
    "MatmulTileRasterizationOrder",
    "MatmulTilingStrategy",
    "MemoryType",
    "Merge",
    "MmaMacro",
    "MmaMacroArch",
    "MmaMacroEncode",
    "NoDeviceError",
    "ParallelType",
    "PointwiseParams",
    "RecordEvent",
    "ReductionParams",
    "RequireDisjoint",
    "ReshapeOp",
    "RtcKernel",
    "SchedulerType",
    "SchedulingError",
    "SetStream",
    "Split",
    "SqueezeOp",
    "Statement",
    "SupportedVectorization",
    "Switch",
    "Synchronize",
    "TensorDomain",
    "TensorView",
    "Tuning",
    "Val",
    "VariantUnavailableError",
    "WaitEvent",
    "__version__",
    "all_of",
    "any_of",
    "compute_tensor_descriptor",
    "define_scalar",
    "define_tensor",
    "equal",
    "execute_with_dtensors",
    "export_tuning",
    "extent",
    "get_val_tolerances",
    "import_tuning",
    "less",
    "less_equal",
    "load",
    "manual_seed",
    "multidevice",
    "not_equal",
    "ops",
    "save",
    "scalar",
    "schedule",
    "stride",
    "translate_fusion",
    "validate_with_auto_inferred_outputs",
    "version",
]
