"""Kernel IR: loops, registers and shared arrays, loads and stores, barriers; and the launch plan.

kernel.py                grammar and semantics; nodes in kernel_statements.py and kernel_values.py
verify_kernel.py         its rules, with verify_kernel_values.py and verify_kernel_header.py
print_kernel.py          its text
kernel_accesses.py       what a statement reads and writes, for all passes
statement_scopes.py      with which threads a statement communicates
uniformity.py            what differs between threads
kernel_demand.py         registers that a thread cannot do without, and instructions to hold
launch_plan.py           how a launch is computed from its arguments
extent_steps.py          what the host computes for it
launch_waits.py          waits for the launches before (programmatic dependent launch)
"""
