"""Passes that decide in which memory values are, and when they are loaded.

Imports of lowering/: context.py, kernel_rewrites.py, parallel_axes.py.

    prefetch_loads.py     loads of the next iteration into registers while this one computes
    partial_residency.py  what some iterations load stays on chip for a loop that goes over the same data backwards
    pipeline_copies.py    commits and waits of asynchronous copies to shared memory, started iterations ahead;
                          copy_groups.py: groups of copies that are waited for one by one
    allocate_shared.py    an offset for every shared buffer, reused where lifetimes are disjoint
    in_place.py           which outputs may be written straight into the storage of the input that they update;
                          read_completion.py: what is read before a store, barriers and waits considered
"""
