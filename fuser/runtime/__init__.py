"""Runtime: devices, NVRTC, compiled kernels and their variants, arrays of other libraries, raw kernels.

Knows nothing of host programs, schedules or definitions.

From the top down; what is below imports nothing above it, and no two files import each other (pyproject.toml):

    probe.py             what a GPU does and how long it takes, by small raw kernels
    rtc_kernel.py        `RtcKernel`: raw CUDA source, with the checks and variants of generated kernels; raw_arguments.py
    call_keys.py         the key of a call, read by code made for the types of its arguments
    generator.py         the state of the random generator: torch's for tensors of torch on a GPU, else the project's own
    arrays/              arrays of any library, as callers hand them in: described, allocated, given back; library ops
    devices/             a CUDA device: memory, streams, launches, graphs; what every device must do
    kernels/             compiled kernels, what compiles them, and what turns their launch plans into launches
    probed_devices.py    what `probe` found of a GPU, kept on disk
    cache/               binaries and programs of earlier processes; files that users name
    array_view.py, layouts.py, scalars.py, launch.py   an array, sizes and strides, a number, a launch: as plain data
    reports.py           errors of work that nobody waited for
    driver.py            it alone imports the driver's bindings; every call goes through it and is checked

Which device
    Inputs on a GPU run where they are. NumPy runs on the GPU if there is one, else on the simulator, or where
    FUSER_DEVICE says. Outputs are arrays of the library that the first tensor input came from.

Memory
    Intermediates and outputs come from the allocator of the caller's library: torch's or CuPy's; else from a
    stream-ordered pool of the device's own (arrays/frameworks.py). Semaphores come from a zeroed pool for each stream, and
    from a reserve within a capture; all pools are dropped after a failed launch, since nobody knows what the counters
    hold.

Which library computes a library op
    NumPy on the simulator, torch on tensors of torch, CuPy on other arrays of a GPU, torch there too where CuPy is
    missing and the program has torch. It works on the stream of the run.

On disk
    What NVRTC makes is found by text, options, architecture and NVRTC version, in kernels/nvrtc.py, so that every door profits;
    a hit loads no library. Whole programs are kept beside (compiler/stored_programs.py). `nvrtc.counters()` tells
    binaries that were compiled from those that were found; `fuser cache info|verify|clear` shows, checks and empties
    the folder. Whatever is wrong with a file is a miss with its reason in the log (docs/decisions/0015-disk-cache.md);
    `tests/end_to_end/cache_torture.py` kills processes over damaged files.
"""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
