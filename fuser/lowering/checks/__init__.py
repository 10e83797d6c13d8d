"""What each pass ensures, as code of its own: run after every pass under FUSER_VERIFY=passes.

Imports of lowering/: kernel_rewrites.py, and none of the passes.

    invariants.py        the named checks, and after which passes they hold
    ordered_accesses.py  barriers in a block, waits for copies, waits of the grid
    pass_result.py       what a pass left, and what a check found wrong about it
"""
