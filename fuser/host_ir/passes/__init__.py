"""Programs as verified data, and rewrites of their instructions.

    inline.py              the instructions of one program as a part of another
    print_program.py       a program as Python
    verified_program.py    a program as immutable data: its instructions, and what is derived from them
    key_needs.py           what of the arguments belongs to the key of a call
    verify.py              what a program must fulfil
    stream_order.py        which instructions come after which
    assign_streams.py      independent launches on several streams
    reuse_memory.py        memory that was freed serves slots that are made later

Streams (stream_order.py)
    `SetStream` puts the following instructions on another logical stream; stream 0 is the caller's. A stream begins after
    what is on stream 0 when the program first switches to it; events and `Synchronize` are the only other order. Two
    streams that access one memory without order are refused when the program is built, or, if inputs share memory, when
    it is called. A run uses its side streams exclusively (runtime/devices/side_streams.py), and the caller's stream waits for
    them at the end, also after an error and within a capture of the caller. Memory belongs to the stream of its
    `Allocate`: a stream that frees it elsewhere makes that stream wait; the memory of outputs belongs to stream 0.
    Recorded graphs have no streams, and refuse `Synchronize` before anything is enqueued.
"""
