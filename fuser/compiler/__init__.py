"""Compiler: the driver. Binds inputs, looks programs up, compiles what is missing, tunes, explains.

    compile_fusion.py     the table of contents: every stage from the fusion to the host program, without caches; its
                          halves `plan_fusion` and `compile_segments` are what `ProgramCache` calls
    kernel_compiler.py    `KernelCompiler`: one segment to one `CompiledKernel`
    executor_cache.py     `FusionExecutorCache`, which runs `fd.execute`: a launcher over `ProgramCache`s, one for each
                          result of concretizing (ir/fusion/concretize.py)
    program_cache.py      finds the program for given inputs: see its four levels
    kernel_executor.py    `KernelExecutor`, which runs `fd.manual_execute`: one kernel, exactly as the user scheduled it
    bind_inputs.py        checks arguments against the fusion's inputs; the messages for unequal extents and invalid
                          reshapes are in ir/fusion/extent_binding.py and ir/fusion/concretize.py
    recorder.py           observes a compilation: FUSER_DUMP writes its stages to files; `fd.explain` compiles again by the
                          same functions and keeps all of them (explanation.py)

Importing the package loads what a compilation needs, so that the first compilation does not pay for it; the driver, NVRTC, the
simulator and SymPy are imported when they are first used.

Time
    Cubins of several segments are compiled in threads while the next segments are lowered (builds.py); after two seconds
    a terminal shows the progress (FUSER_PROGRESS). Garbage collection is paused during stages in Python (gc_paused.py).
    `fd.prepare(inputs)` compiles whole programs in the background, several at once (preparing.py).

What happens after a failure (segment_failures.py)
    NVRTC errors are raised together, each with its segment and the user's line. If schedulers accept the structure of a
    segment but all refuse its sizes, the fusion is split again, and those schedulers are not asked about its exprs. If a
    stage fails on a segment, with whatever error, it is split in the same way: the scheduler gets at most half of the
    exprs that it failed on. So is a kernel of several exprs that needs more than a thread has (ir/kernel/kernel_demand.py):
    registers across iterations and barriers, or more instructions than the cache of an SM holds. An attempt covers all
    segments, so that all that fail are split together; what has failed for a schedule and a layout is not tried again for
    other sizes. An expr that is left alone gets a kernel of its own (schedule/schedulers/fallback.py). A bug is reported
    by a warning, with a reproducer script (reproducer.py); FUSER_VERIFY and FUSER_FAULT make it an error.
    A kernel that spills is compiled again for fewer blocks on an SM, unless its caller fixed their number
    (kernel_bounds.py). If it still spills, or the schedule was made for more blocks, some of the scheduler's next candidates
    that leave a thread more registers are compiled, and the first without these faults is taken: the reasons of its params and
    FUSER_LOG say so. If there is none, the kernel is kept. A proposal for other sizes finds it again.

Tuning (tuning.py, docs/decisions/0016-tuning.md)
    Requested by `tune=True` of a call, FUSER_TUNE=on or `fuser tune SCRIPT`. The candidates of each segment
    (`Scheduler.candidates`) are compiled in parallel and run on the real inputs of the call (segment_trial.py): they write
    to memory of their own, so that inputs are not changed. On a GPU the first run of each is in a child process
    (trial_process.py), so that one that faults or hangs does no harm. Times are taken in interleaved rounds
    (runtime/arrays/cuda_timer.py, or a timer that the caller passes, as the simulator has none); a near-tie goes to
    the proposal. The winner and all others are a record (tuning_record.py), in memory and in the disk cache; `fuser cache
    export|import FILE` takes records to machines with the same GPU. A call uses a record if its key is equal and its
    winner still compiles to the kernel that was measured; else the record is ignored, with a reason. Nothing is measured
    within a stream capture. With `Tuning(wait=False)` or FUSER_TUNE=later, first calls run the proposal while candidates
    are compiled in the background, and the first call after that measures. `fd.explain` shows the candidates as
    tuning.txt.
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
