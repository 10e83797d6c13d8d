"""Runtime: devices, NVRTC, compiled kernels and their variants, arrays of other libraries, raw kernels.

Knows nothing of host programs, schedules or definitions.

    device.py, cuda_device.py    what a device must do, and a CUDA device; the simulator is the other one. driver.py
                                 alone imports the driver's bindings; every call goes through it and is checked
    arrays.py, frameworks.py     arrays of any library as one record; where memory of a call comes from, and in whose
                                 arrays results go out. torch_arrays.py, cupy_arrays.py, jax_arrays.py and
                                 host_arrays.py have one library each
    compiled_kernel.py           `CompiledKernel`, the bridge between compilation and execution; kernel_files.py its
                                 file form, versioned and with a checksum (nothing in a file is executed)
    nvrtc.py, ptxas_log.py       CUDA text in, machine code and a report of resources out
    variants.py                  binaries of one text for other block sizes, one for each rung, compiled once however
                                 many threads ask
    plan_evaluation.py, pack.py  from a launch plan and arguments to sizes and argument cells; facts are checked here
    call_keys.py                 the key of a call, read by code made for the types of its arguments
    commands.py, cuda_graphs.py, cuda_switches.py   what a graph is made of, and CUDA graphs of explicit nodes
    streams.py, side_streams.py, reports.py, selectors.py   order between streams; errors of work that nobody waited for
    library_calls.py             library ops by torch, CuPy or NumPy, without copies of memory; torch_captures.py has
                                 streams and memory of those in graphs
    disk_cache.py                binaries and programs of earlier processes
    rtc_kernel.py                `RtcKernel`: raw CUDA source, with the checks and variants of generated kernels
    generator.py                 the state of the random generator: torch's for tensors of torch on a GPU, else the
                                 project's own

Which device
    Inputs on a GPU run where they are. NumPy runs on the GPU if there is one, else on the simulator, or where
    FUSER_DEVICE says. Outputs are arrays of the library that the first tensor input came from.

Memory
    Intermediates and outputs come from the allocator of the caller's library: torch's or CuPy's; else from a
    stream-ordered pool of the device's own (frameworks.py). Semaphores come from a zeroed pool for each stream, and
    from a reserve within a capture; all pools are dropped after a failed launch, since nobody knows what the counters
    hold.

Which library computes a library op
    NumPy on the simulator, torch on tensors of torch, CuPy on other arrays of a GPU, torch there too where CuPy is
    missing and the program has torch. It works on the stream of the run.

On disk
    What NVRTC makes is found by text, options, architecture and NVRTC version, in nvrtc.py, so that every door profits;
    a hit loads no library. Whole programs are kept beside (compiler/stored_programs.py). `nvrtc.counters()` tells
    binaries that were compiled from those that were found; `fuser cache info|verify|clear` shows, checks and empties
    the folder. Whatever is wrong with a file is a miss with its reason in the log (docs/decisions/0015-disk-cache.md);
    `tests/cache_torture.py` kills processes over damaged files.
"""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
