"""Compiler: the driver. Binds inputs, looks programs up, compiles what is missing, tunes, explains.

    compile_fusion.py     the table of contents: every stage from the fusion to the host program, nothing cached; its
                          halves `plan_fusion` and `compile_segments` are what `ProgramCache` calls
    kernel_compiler.py    `KernelCompiler`: one segment to one `CompiledKernel`
    executor_cache.py     `FusionExecutorCache`, what `fd.execute` runs: a launcher over `ProgramCache`s, one for each
                          pattern of what sizes decide (ir/concretize.py)
    program_cache.py      which program serves these inputs: see its four levels
    kernel_executor.py    `KernelExecutor`, what `fd.manual_execute` runs: the user's own schedule, exactly as it
                          stands, one kernel
    bind_inputs.py        arguments against the fusion's inputs; every mistake in them is told here
    recorder.py           watches a compilation: FUSER_DUMP writes what the compilation that runs hands it; `fd.explain`
                          compiles again by the same functions and keeps all of it (explanation.py)

Importing the package loads what a compilation needs, so that the first one is not the one that pays for it; the driver,
NVRTC, the simulator and SymPy stay out until they are called for.

Time
    Binaries of several segments are made in threads while the next segments are lowered (builds.py); a terminal is told
    after two seconds how far it is (FUSER_PROGRESS). Garbage is not collected during stages in Python (gc_paused.py).
    `fd.prepare(inputs)` compiles whole programs in the background, several at once (preparing.py).

What fails (segment_failures.py)
    NVRTC's refusals are raised together, each with its segment and the user's line. Where schedulers take the structure
    of a segment and none its sizes, the fusion is cut again, without asking them about any of its exprs. Where a stage
    fails on a segment, whatever it raises, it is cut in the same way: the scheduler takes at most half of what it
    failed on. So is a kernel of several exprs that asks more of a thread than there is (ir/kernel_demand.py): registers
    across iterations and barriers, or instructions than the cache of an SM holds. An attempt goes over all segments, so
    that all that fail are cut together; what has failed for a schedule and a layout is not tried again for other sizes.
    An expr that is left alone is a kernel of its own (schedule/schedulers/expr_eval.py). A bug is told by a warning with a
    script that shows it again (reproducer.py); FUSER_VERIFY and FUSER_FAULT make it an error. A kernel that spills is compiled
    again for fewer blocks on an SM, where its caller did not ask for their number (kernel_bounds.py). If it still spills,
    it is made of its scheduler's next candidate that leaves a thread more registers and does not spill: the reasons of its
    parameters say so, as does FUSER_LOG. What is proposed finds it again for other sizes.

Tuning (tuning.py, docs/decisions/0016-tuning.md)
    Asked for by `tune=True` of a call, FUSER_TUNE=on or `fuser tune SCRIPT`. The candidates of each segment
    (`Scheduler.candidates`) are compiled side by side and run on the real inputs of the call (segment_trial.py): what
    they write goes to memory of their own, so that inputs stay as they are. On a GPU the first run of each is that of a
    child process (trial_process.py), so that one that faults or hangs takes nothing with it. Times are taken in
    interleaved rounds (runtime/cuda_timer.py, or a timer that the caller gives, as the simulator has none); a near-tie
    is the proposal's. The winner and all others are a record (tuning_record.py), in memory and in the disk cache;
    `fuser cache export|import FILE` takes records to machines with the same GPU. Any call uses a record whose key is
    what is at hand and whose winner still becomes the very kernel that was measured; else it is a miss, with a reason.
    Nothing is measured within a stream capture. With `Tuning(wait=False)` or FUSER_TUNE=later first calls run the
    proposal while candidates are compiled in the background, and the first call behind that measures. `fd.explain`
    shows the candidates as tuning.txt.
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
