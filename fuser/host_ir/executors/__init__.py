"""The ways to run a host program.

    captured_program.py    a run recorded once as a graph, launched any number of times; moving_arguments.py: what
                           differs between runs
    launcher.py            the default: one key for each call, and a function for each key
    families.py            binds calls of new sizes by a recorded trace
    straight_line.py       the code of a bound call
    recording.py           what a bound program asks of its device, as commands with edges
    derived_steps.py       the steps that a run would leave, without running them
    interpreter.py         the reference: each instruction checked and run at every launch
    choices.py             bodies that the device chooses
    steps.py               instructions with all sizes, layouts and launches filled in
    call_checks.py, launch_checks.py   library calls and launches, checked when they are bound
    run_inputs.py          device, memory and streams of a run
    run_history.py         counters, and what `explain` says of earlier runs

The launcher
    key             (runtime/call_keys.py) types; for each tensor element type, shape, strides, low bits of the address,
                    and device; values of scalars that sizes or host arithmetic depend on (passes/key_needs.py); FUSER_ENABLE
                    and FUSER_DISABLE; FUSER_DEVICE if arrays are in host memory; a device that the caller names. Its
                    second half is which inputs share memory, if one is updated, and which bodies scalars choose
                    (instructions/paths.py)
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
                    comparisons and arithmetic (ir/integers/number_trace.py). The trace becomes a function that repeats all
                    comparisons for other sizes and fills in the same steps; if one has another result, the call is
                    bound the long way. So it chooses what the long way would, whatever schedulers look at. Numbers that
                    they use as dictionary keys cannot be traced. docs/decisions/0019-traces-of-new-sizes.md has the
                    reasons
    all else        is run by the interpreter: arrays of JAX or of several libraries, tensors of torch in host memory.
                    `HostProgram.interpreted` counts it by reason
    `make bench-host` measures a call; without a GPU with a driver that does nothing.

Graphs
    Recording (recording.py) runs the steps of a bound program on a device that records commands (runtime/kernels/commands.py),
    in one pass; if the launcher knows the key of the arguments, their steps are recorded without binding. Intermediates,
    workspaces and counters are allocated once and belong to the recording. Edges are derived from the bytes that commands
    read and write (instructions/dependencies.py). On a stream that a caller captures, commands are added to the
    caller's graph one by one. A launch does as little as possible; `counters` counts each, `python3 -m
    benchmarks.graph_time` measures them:
        launch       nothing changed
        set nodes    other addresses, numbers, grids or kernels; without recording if only arguments moved
                     (moving_arguments.py)
        instantiate  commands of other kinds, other edges, or what the driver cannot set in an existing graph.
                     cuGraphExecUpdate would be a step between: it takes only graphs of equal edges, and hardly more nodes
                     than can be set one by one

Early launches (runtime/devices/early_launches.py)
    A launch right after another one starts while that one ends, if its kernel waits before it accesses memory; the
    compiler makes all kernels so that follow others in a program. In a graph edges are early, not nodes. Compute
    capability 9.0 and later; `FUSER_PDL=off` turns it off. docs/decisions/0020-early-launches.md has gains and reasons.

Library calls (call_checks.py, runtime/kernels/library_calls.py)
    `CallLibrary` writes into slots of any layout. Its arguments are checked when the call is bound, and its scalars are in
    the key. In a CUDA graph a call is a child graph, captured on a stream of its own, with memory of its own
    (runtime/arrays/torch_captures.py); for other addresses it is captured again and that node is set. If a program has calls
    that cannot be recorded (of CuPy, with dropout, or with a read by the host in between), its commands are put on the
    stream at each launch; a warning in the log says so. `program.explain()` says which library computed a call and what
    was copied or converted.
"""
