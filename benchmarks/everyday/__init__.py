"""Fusions as people meet them every day, from the public code of models, optimizers and data preparation.

`recipe.py` says how one is written; each other file is a family. Sizes are those of real models, many of them odd. They double
as a corpus of how the DSL reads.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from benchmarks.case import Case
from benchmarks.everyday.recipe import Everyday

FAMILIES = (
    "norms",
    "norm_gradients",
    "norm_statistics",
    "norm_compositions",
    "attention",
    "positions",
    "activations",
    "cells",
    "losses",
    "pair_losses",
    "optimizers",
    "training_steps",
    "vision",
    "windows",
    "small_windows",
    "image_preparation",
    "quantisation",
    "compressed",
    "data",
    "sequences",
    "state_space",
    "routing",
    "simulations",
    "features",
    "scenes",
    "decoding",
)
"""Files of this folder. windows, image_preparation, norm_statistics, sequences, pair_losses, training_steps, positions, cells,
compressed, simulations and features came later, when the compiler had been measured with the others for long; norm_compositions
and small_windows later still, scenes and decoding last."""


def everyday_cases(*, small: bool = False) -> list[Case]:
    """All of them, family by family; with `small` at sizes for machines without a GPU. Nothing is allocated."""
    return list(_cases(small))


@cache
def _cases(small: bool) -> tuple[Case, ...]:
    """Made once: each case is defined to see how many bytes its outputs have, and many tests ask for all of them."""
    return tuple(
        recipe.case(small=small)
        for family in FAMILIES
        for recipe in vars(import_module(f"benchmarks.everyday.{family}")).values()
        if isinstance(recipe, Everyday)
    )
