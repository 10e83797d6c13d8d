"""Host IR: programs of instructions over compiled kernels, and the ways to run them.

A `HostProgram` (program.py) is inputs, outputs and instructions over named slots, with the ways to run it.

Layers, from the top down. A file imports only files below it (`pyproject.toml` has each file's place)
    constructing programs  build.py from segments, parse_program.py from text, saved_programs.py from a file
    program.py             `HostProgram`, the class that users have: a verified program, its history and a launcher
    ways to run            captured_program.py, launcher.py with families.py and straight_line.py, interpreter.py. They use
                           steps and verified programs; what they observe goes into the history (run_history.py)
    steps.py               a program bound to arguments: instructions with all sizes, layouts and launches filled in
    showing, rewriting     explain.py, print_program.py and inline.py read a verified program
    verified_program.py    a program as immutable data: its instructions, and what is derived from them (verify.py,
                           key_needs.py, side_by_side.py)
    passes                 stream_order.py says which instructions come after which; assign_streams.py and reuse_memory.py
                           rewrite lists of them
    single instructions    what each reads and writes (accesses.py), which bodies it has (bodies.py, paths.py), its text
                           (print_instruction.py), the layout of the value in a slot (slot_layouts.py)
    instructions.py        the grammar, over sizes (expressions.py)

How a program is made
    build.py             from segments and kernels: allocate, launch or call a library, free after the last use
    reuse_memory.py      a slot reuses the memory of one that was freed, if it is large enough for all sizes and all
                         accesses to it come earlier in the order of the data. `explain` shows how much memory a run uses
    assign_streams.py    `program.on_streams(n)`: independent launches on several streams. Only on request, as memory and
                         events cost more then
    inline.py            `program.inlined(...)`: a program as a part of another, such as a case of a `Switch`
    saved_programs.py    `fuser.save` and `fuser.load`: instructions, kernels and their cubins in one file, for a process
                         that imports no compiler
    An output that updates an input is written straight into it if its kernel allows that (lowering/memory/in_place.py) and
    nothing reads the input later. Else it is computed into a temporary, which is copied over at the end, after every
    read.

Three ways to run a program, with equal results
    interpreter   (interpreter.py) checks everything at every launch; the reference. It binds each instruction to a step
                  (steps.py), in which all sizes, layouts and launches are filled in, and runs the step
    launcher      (launcher.py) the default: one key for each call, and a function for each key
    graph         (captured_program.py) a run recorded once as a CUDA graph, by `program.capture(inputs)`, or by
                  `fd.execute(inputs, graph=True)`, which keeps one graph for a device

The launcher
    key             (runtime/call_keys.py) types; for each tensor element type, shape, strides, low bits of the address,
                    and device; values of scalars that sizes or host arithmetic depend on (key_needs.py); FUSER_ENABLE
                    and FUSER_DISABLE; FUSER_DEVICE if arrays are in host memory; a device that the caller names. Its
                    second half is which inputs share memory, if one is updated, and which bodies scalars choose
                    (paths.py)
    first call      runs in the interpreter; for a `FusionExecutorCache` after binding, scheduling and compiling. Its
                    steps are kept as a `BoundProgram`
    later calls     run the straight-line function (straight_line.py): the steps as code of one function that allocates,
                    writes addresses into argument buffers, launches and returns. Each thread makes its own, when it
                    first meets the key, from the second call on. Sizes are constants of the function, so that shapes
                    share its code object. Argument buffers and launch configurations belong to one thread; a call that
                    begins while another one is under way in the same thread gets others. The current stream, device and
                    context, and flags of lazily negated tensors, are read at each call
    new sizes       (families.py) calls that differ from earlier ones only in sizes, strides, addresses and scalars that
                    are just passed on are one family. After eight calls of a family that were bound the long way
                    (binding, schedulers, facts, launch plans), that way is taken once more with numbers that record
                    comparisons and arithmetic (ir/number_trace.py). The trace becomes a function that repeats all
                    comparisons for other sizes and fills in the same steps; if one has another result, the call is
                    bound the long way. So it chooses what the long way would, whatever schedulers look at. Searches for
                    mappings are repeated as calls. Numbers that are otherwise used as dictionary keys cannot be traced.
                    docs/decisions/0019-traces-of-new-sizes.md has the reasons
    all else        is run by the interpreter: arrays of JAX or of several libraries, tensors of torch in host memory.
                    `HostProgram.interpreted` counts it by reason
    `make bench-host` measures a call; without a GPU with a driver that does nothing.

Graphs
    Recording (recording.py) runs the steps of a bound program on a device that records commands (runtime/commands.py),
    in one pass; if the launcher knows the key of the arguments, their steps are recorded without binding. Intermediates,
    workspaces and counters are allocated once and belong to the recording. Edges are derived from the bytes that commands
    read and write (dependencies.py). On a stream that a caller captures, commands are added to the caller's graph one by
    one. A launch does as little as possible; `counters` counts each, `python3 -m benchmarks.graph_time` measures them:
        launch       nothing changed
        set nodes    other addresses, numbers, grids or kernels; without recording if only arguments moved
                     (moving_arguments.py)
        instantiate  commands of other kinds, other edges, or what the driver cannot set in an existing graph.
                     cuGraphExecUpdate would be a step between: it takes only graphs of equal edges, and hardly more nodes
                     than can be set one by one

Streams (stream_order.py)
    `SetStream` puts the following instructions on another logical stream; stream 0 is the caller's. A stream begins after
    what is on stream 0 when the program first switches to it; events and `Synchronize` are the only other order. Two
    streams that access one memory without order are refused when the program is built, or, if inputs share memory, when
    it is called. A run uses its side streams exclusively (runtime/side_streams.py), and the caller's stream waits for
    them at the end, also after an error and within a capture of the caller. Memory belongs to the stream of its
    `Allocate`: a stream that frees it elsewhere makes that stream wait; the memory of outputs belongs to stream 0.
    Recorded graphs have no streams, and refuse `Synchronize` before anything is enqueued.

Bodies (bodies.py)
    `If`, `Switch` and `ForLoop` have bodies. If sizes decide which run, the host knows it when the program is called: the
    steps are those of one path, without a decision in them. What extents decide follows from the key; for scalars of the
    caller the key has their decisions (paths.py); scalars that are compared with what the program computes are in the key
    themselves. A body is verified like a program that begins there; its slots end with it, except those that all bodies
    of an `If` or `Switch` allocate alike.

    If a tensor of one element decides, it is a device-side conditional (choices.py). All bodies are bound, equal ones
    once, and the value is in no key. Memory of the bodies is allocated around the conditional and shared by them. On a
    stream the host waits, reads the value and runs one body (`host_reads` counts that); in a graph a kernel of one thread
    sets a conditional node (runtime/cuda_switches.py). With drivers before CUDA 12.8 the captured program puts its
    commands on the stream, and the log says so. If all bodies are equal the value is only checked. Streams, events and
    `Synchronize` in such a body are refused when the program is built. A selector out of range runs the default and is
    an error, raised when the host next synchronises (runtime/reports.py). Such programs are refused within a stream
    capture of the caller. docs/decisions/0018-choices-of-the-device.md has costs and reasons.

Co-resident launches (side_by_side.py)
    Of two independent kernels the first lets the next one start, which waits for the first only at its end. They share no
    counters and no scratch memory; anything between their launches keeps them apart. If the first has at most one block
    on each SM, the shared memory of an SM is divided equally between both (`Launch.shares_sms`): else an SM takes no
    blocks of the second before it is idle. Compute capability 9.0 and later only.

Early launches (runtime/early_launches.py)
    A launch right after another one starts while that one ends, if its kernel waits before it accesses memory; the
    compiler makes all kernels so that follow others in a program. In a graph edges are early, not nodes. Compute
    capability 9.0 and later; `FUSER_PDL=off` turns it off. docs/decisions/0020-early-launches.md has gains and reasons.

Library calls (call_checks.py, runtime/library_calls.py)
    `CallLibrary` writes into slots of any layout. Its arguments are checked when the call is bound, and its scalars are in
    the key. In a CUDA graph a call is a child graph, captured on a stream of its own, with memory of its own
    (runtime/torch_captures.py); for other addresses it is captured again and that node is set. If a program has calls
    that cannot be recorded (of CuPy, with dropout, or with a read by the host in between), its commands are put on the
    stream at each launch; a warning in the log says so. `program.explain()` says which library computed a call and what
    was copied or converted.
"""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
