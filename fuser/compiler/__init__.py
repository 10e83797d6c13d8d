"""The compiler: `compile_fusion`, `KernelCompiler`, the executors and their caches.

Importing the package loads what a compilation needs, so that the first one is not the one that pays for it; the driver, NVRTC,
the simulator and SymPy stay out until they are called for.
"""

from typing import TYPE_CHECKING

from fuser.compiler.compile_fusion import compile_fusion as compile_fusion
from fuser.compiler.executor_cache import FusionExecutorCache as FusionExecutorCache
from fuser.compiler.kernel_compiler import KernelCompiler as KernelCompiler
from fuser.compiler.kernel_executor import KernelExecutor as KernelExecutor
from fuser.compiler.reproducer import reproducer_text as reproducer_text
from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
