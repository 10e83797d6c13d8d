"""Host IR: programs of instructions over compiled kernels, and the ways to run them.

A `HostProgram` (program.py) is inputs, outputs and instructions over named slots, and the ways to run them.

Layers, from the top down. A file imports only what stands below it (`pyproject.toml` has each file's place)
    made of something     build.py of segments, parse_program.py of a text, saved_programs.py of a file
    program.py            `HostProgram`, the class that users have: a verified program, its history and a launcher
    ways to run           captured_program.py, launcher.py with families.py and straight_line.py, interpreter.py. They know
                          steps and verified programs; what they note goes into the history (run_history.py)
    steps.py              a program bound to arguments: instructions with all sizes, layouts and launches filled in
    told and rewritten    explain.py, print_program.py and inline.py read a verified program
    verified_program.py   a program as data, immutable: its text, and what follows from it (verify.py, key_needs.py,
                          side_by_side.py)
    passes                stream_order.py says which instructions come after which; assign_streams.py and reuse_memory.py
                          rewrite lists of them
    single instructions   what each reads and writes (accesses.py), which bodies it has (bodies.py, paths.py), its text
                          (print_instruction.py), how a value lies in its slot (slot_layouts.py)
    instructions.py       the grammar, over sizes (expressions.py)

How a program is made
    build.py             from segments and kernels: allocate, launch or call a library, free behind the last reader
    reuse_memory.py      a slot takes the memory of one that was freed, where it is enough for all sizes and all that
                         touched it comes before by the data anyway. `explain` tells how much memory a run has at a time
    assign_streams.py    `program.on_streams(n)`: independent launches on several streams, for whoever asks, as memory
                         and events cost more then
    inline.py            `program.inlined(...)`: a program as a part of another, such as a case of a `Switch`
    saved_programs.py    `fuser.save` and `fuser.load`: text, kernels and the binaries that were made of them in one
                         file, for a process that imports no compiler
    An output that updates an input is written straight into it where its kernel allows that (lowering/memory/in_place.py) and
    nothing reads the input later. Else it is computed into a temporary, which is copied over at the end, after every
    read.

Three ways to run a program, with equal results
    interpreter   (interpreter.py) checks everything at every launch; the reference. It binds each instruction to a step
                  (steps.py), in which all sizes, layouts and launches are filled in, and runs the step
    launcher      (launcher.py) the default: one key for each call, and for each key the code that an earlier call left
    graph         (captured_program.py) a run recorded once as a graph of the device, `program.capture(inputs)`, or
                  `fd.execute(inputs, graph=True)`, which keeps one graph for a device

The launcher
    key             (runtime/call_keys.py) types, and of each tensor element type, shape, strides, low bits of the
                    address and device; values of numbers that sizes or host arithmetic depend on (key_needs.py);
                    FUSER_ENABLE and FUSER_DISABLE, FUSER_DEVICE where arrays are in host memory, a device that is asked
                    for. Its second half is which inputs share memory, where one is updated, and what numbers decide
                    (paths.py)
    first call      goes through the interpreter, behind binding, scheduling and compiling where the launcher is that of
                    a `FusionExecutorCache`. Its steps are kept as a `BoundProgram`
    later calls     run the straight-line function (straight_line.py): the steps as code of one function that allocates,
                    writes addresses into argument buffers, launches and returns. A thread makes it when it first meets
                    the key, from the second call on. Sizes are constants that the text is made with, so that shapes
                    share its code object. Cells and launch configurations belong to one thread, and a call that comes
                    in while one is under way in it gets others. The current stream, device and context, and flags of
                    lazily negated tensors, are asked at each call
    new sizes       (families.py) calls that differ from earlier ones in sizes, strides, addresses and numbers that are
                    passed on are one family. After eight calls of a family that went the whole way (binding,
                    schedulers, facts, launch plans), that way is taken once more with numbers that note what is
                    compared and computed (ir/number_trace.py). The trace becomes a function that tests other sizes for
                    all that was asked and fills in the same steps; where a test fails, the call goes the whole way. So
                    it chooses what the whole way would, whatever schedulers look at; numbers that they use as keys of
                    dictionaries cannot be traced. docs/decisions/0019-traces-of-new-sizes.md has the reasons
    the rest        stays with the interpreter: arrays of JAX or of several libraries, tensors of torch in host memory.
                    `HostProgram.interpreted` counts it by reason
    `make bench-host` measures a call, without a GPU on a driver that does nothing.

Graphs
    Recording (recording.py) runs the steps of a bound program against a frame whose device notes commands
    (runtime/commands.py), in one pass; arguments whose key the launcher knows are recorded from the steps that are
    there. Intermediates, workspaces and counters are taken once and belong to the recording. Edges come from the bytes
    that commands read and write (dependencies.py). On a stream that a caller captures, commands join the caller's graph
    one by one. A launch climbs as few steps of a ladder as it can; `counters` counts each, `python3 -m
    benchmarks.graph_time` measures them:
        launch       nothing changed
        set nodes    other addresses, numbers, grids or kernels; without a recording where only arguments moved
                     (moving_arguments.py)
        instantiate  commands of other kinds, other edges, or what the driver does not set in place. There is no step
                     before: cuGraphExecUpdate takes only graphs of equal edges, and hardly more nodes than can be set
                     one by one

Streams (stream_order.py)
    `SetStream` puts what follows on another logical stream; stream 0 is the caller's. A stream begins behind what is on
    stream 0 where the program first turns to it; events and `Synchronize` are the only other order. Two streams that
    touch one memory without order are refused when the program is built, or, where inputs turn out to share memory,
    when it is called. A run has side streams of the device alone (runtime/side_streams.py), and the caller's stream
    waits for them at the end, also after an error and within a capture of the caller. Memory belongs to the stream of
    its `Allocate`: a stream that gives it back elsewhere makes that stream wait, and memory that goes out is stream
    0's. Recorded graphs have no streams, and refuse `Synchronize` before anything is enqueued.

Bodies (bodies.py)
    `If`, `Switch` and `ForLoop` have bodies. Where sizes decide which run, the host knows it when the program is
    called: the steps are those of one path, without a decision in them. What extents decide is in the key; where
    numbers of the caller decide, the key has what they decide (paths.py), and numbers that are compared with what the
    program makes are in it themselves. A body is verified like a program that begins where it stands; what it makes
    ends with it, but for what all bodies of an `If` or `Switch` allocate alike.

    Where a tensor of one element decides, it is a choice of the device (choices.py). All bodies are bound, equal ones
    once, and the value is in no key. Their memory is made around the choice, and bodies share it. In a stream the host
    waits, reads the value and runs one body (`host_reads` counts that); in a graph a kernel of one thread sets a
    conditional node (runtime/cuda_switches.py), on drivers before CUDA 12.8 the captured program puts its commands on
    the stream, and the log says so. Where all bodies are equal the value is only looked at. Streams, events and
    `Synchronize` in such a body are refused when the program is built. A selector out of range runs the default and is
    an error, raised where the host next synchronises (runtime/reports.py). Such programs are refused within a stream
    capture of the caller. docs/decisions/0018-choices-of-the-device.md has costs and reasons.

Co-resident launches (side_by_side.py)
    Of two kernels that need nothing of each other the first lets the next start, which waits for it only at its end.
    They share no counters and no scratch memory; anything between their launches keeps them apart. Where the first has
    at most one block on each SM, shared memory of an SM is divided alike for both (`Launch.shares_sms`): else an SM
    takes no blocks of the second before it is idle. Compute capability 9.0 and later only.

Early launches (runtime/early_launches.py)
    A launch right behind another one starts while that one ends, if its kernel waits before it touches memory; the
    compiler makes all kernels so that follow others in a program. In a graph edges are early, not nodes. Compute
    capability 9.0 and later; `FUSER_PDL=off` turns it off. docs/decisions/0020-early-launches.md has gains and reasons.

Library calls (call_checks.py, runtime/library_calls.py)
    `CallLibrary` writes into slots of any layout. What fits is checked when the call is bound, and its numbers are in
    the key. In a CUDA graph a call is a graph within the graph, captured on a stream that nobody else has, with memory
    of its own (runtime/torch_captures.py); other addresses capture it again and set that node. Calls that cannot be
    recorded, of CuPy, with dropout, or where the host reads on the way, make the program one that is put on the stream
    at each launch; a warning in the log says so. `program.explain()` says which library computed it and what was copied
    or converted.
"""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
