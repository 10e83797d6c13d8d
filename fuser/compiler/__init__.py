"""The compiler: `compile_fusion`, `KernelCompiler`, the executors and their caches.

Importing the package loads what a compilation needs, so that the first one is not the one that pays for it; the driver, NVRTC,
the simulator and SymPy stay out until they are called for.
"""

import fuser.compiler.executor_cache
import fuser.compiler.kernel_executor
import fuser.compiler.reproducer  # noqa: F401  (its users import it on the way)
