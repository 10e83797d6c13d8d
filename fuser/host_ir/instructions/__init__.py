"""Instructions of host programs: the grammar, and what each of them reads, writes, contains and prints as.

    accesses.py            what an instruction reads and writes of its slots, for the verifier and all passes
    dependencies.py        which commands must wait for which, from the bytes that they read and write
    paths.py               which bodies run, as a call's numbers decide it
    print_instruction.py   an instruction as Python
    side_by_side.py        co-resident launches
    slot_layouts.py        the layout of the value in a slot
    bodies.py              instructions that contain instructions
    scalar_sizes.py        extents of a fusion as sizes of a program
    instructions.py        the grammar
    expressions.py         sizes: integer expressions over the extents, strides and values of slots

Bodies (bodies.py)
    `If`, `Switch` and `ForLoop` have bodies. If sizes decide which run, the host knows it when the program is called: the
    steps are those of one path, without a decision in them. What extents decide follows from the key; for scalars of the
    caller the key has their decisions (paths.py); scalars that are compared with what the program computes are in the key
    themselves. A body is verified like a program that begins there; its slots end with it, except those that all bodies
    of an `If` or `Switch` allocate alike.

    If a tensor of one element decides, it is a device-side conditional (executors/choices.py). All bodies are bound, equal ones
    once, and the value is in no key. Memory of the bodies is allocated around the conditional and shared by them. On a
    stream the host waits, reads the value and runs one body (`host_reads` counts that); in a graph a kernel of one thread
    sets a conditional node (runtime/devices/cuda_switches.py). With drivers before CUDA 12.8 the captured program puts its
    commands on the stream, and the log says so. If all bodies are equal the value is only checked. Streams, events and
    `Synchronize` in such a body are refused when the program is built. A selector out of range runs the default and is
    an error, raised when the host next synchronises (runtime/reports.py). Such programs are refused within a stream
    capture of the caller. docs/decisions/0018-choices-of-the-device.md has costs and reasons.

Co-resident launches (side_by_side.py)
    Of two independent kernels the first lets the next one start, which waits for the first only at its end. They share no
    counters and no scratch memory; anything between their launches keeps them apart. If the first has at most one block
    on each SM, the shared memory of an SM is divided equally between both (`Launch.shares_sms`): else an SM takes no
    blocks of the second before it is idle. Compute capability 9.0 and later only.
"""
