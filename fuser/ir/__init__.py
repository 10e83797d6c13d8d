"""Data types that the stages hand to one another, and the walks that more than one stage needs.

Nothing here imports another layer of the project but `fuser.errors`; no heuristics live here.
"""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
