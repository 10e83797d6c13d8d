"""Passes over memory: when values are loaded, which stay on chip, and where buffers are.

Imports of lowering/: context.py, kernel_rewrites.py, parallel_axes.py.

    prefetch_loads.py     loads of the next iteration into registers while this one computes
    partial_residency.py  data of some iterations stays on chip for a loop that reads the same data backwards
    pipeline_copies.py    commits and waits of asynchronous copies to shared memory, started iterations ahead;
                          copy_groups.py: groups of copies that are waited for one by one
    allocate_shared.py    an offset for every shared buffer, reused where lifetimes are disjoint
    in_place.py           which outputs may be written directly into the storage of the input that they update;
                          read_completion.py: whether a read is complete before a store
"""
