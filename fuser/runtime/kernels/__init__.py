"""Compiled kernels: what crosses from compilation to execution, and becomes a launch.

compiled_kernel.py           `CompiledKernel`, the bridge between compilation and execution, and its file form
nvrtc.py, ptxas_log.py       CUDA text in, machine code and a report of resources out
variants.py                  binaries of one text for other block sizes, one for each rung, compiled once however
                             many threads ask
plan_evaluation.py, pack.py  from a launch plan and arguments to sizes and argument cells; facts are checked here
commands.py, library_calls.py, selectors.py   what a device can be asked to do later, as data
launch_params.py             `LaunchParams`, the launch sizes that a caller asks for
raw_signature.py             the parameters of a raw kernel, read by the compiler
machine_code.py              whether a binary waits for the launches before it ahead of its accesses
"""
