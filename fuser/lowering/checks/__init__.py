"""Postconditions of passes, as code that shares nothing with the passes: run after each under FUSER_VERIFY=passes.

Imports of lowering/: kernel_rewrites.py, and none of the passes.

    invariants.py        the named checks, and after which passes they hold
    sync_checks.py       checks of block barriers, waits for asynchronous copies, grid barriers
    pass_result.py       the result of a pass, and the findings of a check
"""
