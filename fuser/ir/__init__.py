"""Data types that the stages hand to one another, and the walks that more than one stage needs.

Nothing here imports another layer of the project but `fuser.errors`; no heuristics live here.
"""
