"""Arrays of any library, as callers hand them in.

What callers hand in, whatever library it is of
    arrays.py                    arrays recognised by their type, and described as an `ArrayView`
    frameworks.py                in whose memory an execution works, and in whose arrays its results go out
    device_choice.py, library_choice.py   the device of an execution, and the library of a library op
    host_arrays.py               arrays in host memory: to a device and back

One library each
    torch_library.py, cupy_library.py, array_library.py   library ops, without copies of memory; torch_captures.py
                                 has torch's streams and memory of those in graphs
    torch_arrays.py, cupy_arrays.py, jax_arrays.py   description, memory, current stream, results
    dlpack.py                    DLPack capsules: arrays of libraries that the project does not know
    device_tensor.py             `DeviceTensor`, this project's own array; device_memory.py makes results of it, or of
                                 NumPy, from the device's own memory; storage.py says what all of these must do
    cuda_timer.py                times of work on a GPU, each with a cold second-level cache
"""
