"""Runtime: devices, NVRTC, compiled kernels and their variants, arrays of other libraries, raw kernels.

Knows nothing of host programs, schedules or definitions.

From the top down; a file imports files of its own layer or below, and no two files import each other (pyproject.toml):

Doors
    probe.py                     what a GPU does and how long it takes, by small raw kernels
    rtc_kernel.py                `RtcKernel`: raw CUDA source, with the checks and variants of generated kernels
    call_keys.py                 the key of a call, read by code made for the types of its arguments
    generator.py                 the state of the random generator: torch's for tensors of torch on a GPU, else the
                                 project's own

What callers hand in, whatever library it is of
    arrays.py                    arrays recognised by their type, and described as an `ArrayView`
    frameworks.py                in whose memory an execution works, and in whose arrays its results go out
    device_choice.py, library_choice.py   the device of an execution, and the library of a library op
    host_arrays.py               arrays in host memory: to a device and back

One library each
    torch_arrays.py, cupy_arrays.py, jax_arrays.py   description, memory, current stream, results
    torch_library.py, cupy_library.py, array_library.py   library ops, without copies of memory; torch_captures.py
                                 has torch's streams and memory of those in graphs
    device_tensor.py             `DeviceTensor`, this project's own array; device_memory.py makes results of it, or of
                                 NumPy, from the device's own memory; storage.py says what all of these must do

A CUDA device
    cuda_device.py               the device; the simulator is the other one. cuda_launches.py, cuda_binaries.py,
                                 cuda_device_info.py: what launching, loading and asking take
    cuda_graphs.py, cuda_switches.py   CUDA graphs of explicit nodes; graph_device.py is what they ask of the device
    early_launches.py            which launches start before those before them have ended

Work on any device
    run_commands.py, strided_copy.py, host_bytes.py   commands one by one; copies between layouts; bytes read back
    streams.py, side_streams.py  order between streams, and what must live until work is done

What a device must do
    device.py                    the protocol, and the registry of devices by name

What crosses from compilation, and becomes a launch
    commands.py, library_calls.py, selectors.py   what a device can be asked to do later, as data
    compiled_kernel.py           `CompiledKernel`, the bridge between compilation and execution, and its file form
    probed_devices.py            what `probe` found of a GPU, kept on disk
    nvrtc.py, ptxas_log.py       CUDA text in, machine code and a report of resources out
    variants.py                  binaries of one text for other block sizes, one for each rung, compiled once however
                                 many threads ask
    plan_evaluation.py, pack.py  from a launch plan and arguments to sizes and argument cells; facts are checked here
    disk_cache.py, user_files.py binaries and programs of earlier processes; files that users name
    file_lock.py                 a lock that processes share

Words for all of them
    array_view.py, layouts.py, scalars.py, launch.py   an array, sizes and strides, a number, a launch: as plain data
    reports.py                   errors of work that nobody waited for
    driver.py                    it alone imports the driver's bindings; every call goes through it and is checked

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
    `tests/end_to_end/cache_torture.py` kills processes over damaged files.
"""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
