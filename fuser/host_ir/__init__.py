"""Host IR: programs of instructions over compiled kernels, and the ways to run them.

A `HostProgram` (program.py) is inputs, outputs and instructions over named slots, with the ways to run it.

From the top down; what is below imports nothing above it (pyproject.toml)
    build.py, parse_program.py, saved_programs.py   a program made from segments, from text, from a file
    program.py       `HostProgram`, the class that users have: a verified program, its history and a launcher
    explain.py       a program for people: its text, and how each kernel is launched
    executors/       the ways to run a program: interpreter, launcher, recorded graphs
    passes/          a program as verified data, and rewrites of its instructions: streams, memory, inlining, printing
    instructions/    the grammar, and what a single instruction reads, writes, contains and prints as

How a program is made
    build.py             from segments and kernels: allocate, launch or call a library, free after the last use
    passes/reuse_memory.py      a slot reuses the memory of one that was freed, if it is large enough for all sizes and all
                         accesses to it come earlier in the order of the data. `explain` shows how much memory a run uses
    passes/assign_streams.py    `program.on_streams(n)`: independent launches on several streams. Only on request, as memory and
                         events cost more then
    passes/inline.py            `program.inlined(...)`: a program as a part of another, such as a case of a `Switch`
    saved_programs.py    `fuser.save` and `fuser.load`: instructions, kernels and their cubins in one file, for a process
                         that imports no compiler
    An output that updates an input is written straight into it if its kernel allows that (lowering/memory/in_place.py) and
    nothing reads that memory later, by whatever name: the program requires that what it reads later lies elsewhere
    (`RequireDisjoint`). Else it is computed into a temporary, which is copied over at the end, after every read. The compiler
    knows where inputs lie, and has a program for those that share memory and one for those that do not.

Three ways to run a program, with equal results
    interpreter   (executors/interpreter.py) checks everything at every launch; the reference. It binds each
                  instruction to a step (executors/steps.py), in which all sizes, layouts and launches are filled in,
                  and runs the step
    launcher      (executors/launcher.py) the default: one key for each call, and a function for each key
    graph         (executors/captured_program.py) a run recorded once as a CUDA graph, by `program.capture(inputs)`, or by
                  `fd.execute(inputs, graph=True)`, which keeps one graph for a device
"""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
