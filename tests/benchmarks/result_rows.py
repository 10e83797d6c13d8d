"""A row of results in which all is well."""

from __future__ import annotations

from benchmarks.results_table import Row

GOOD = Row(
    "softmax_bf16_16384x4096", 268435456, "ok", "0.50 ulp", 68.4, 70.0, (69.0, 71.0), 9.0, 1, (("quack*", 70.9),)
)
