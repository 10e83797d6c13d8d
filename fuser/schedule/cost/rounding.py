"""Rounded counts: near numbers share a search for mappings, and a kernel."""

from __future__ import annotations

LENGTH, OF_ROWS = 6, 2
"""Binary digits of the length of a row, and of a number of rows, that mappings depend on. Rows differ from call to call: they
are reductions, or elements of each where neighbouring threads have neighbouring results, or where there is one result. Of
more results than a device has threads any number is like another."""


def ceil_div(a: int, b: int) -> int:
    """Rounded up."""
    return -(-a // b)


def power_of_two(value: int) -> int:
    """The smallest power of two that is at least `value`."""
    return 1 << max(0, value - 1).bit_length()


def round_to_significant_bits(count: int, digits: int) -> int:
    """To the nearest number of so many binary digits."""
    step = 1 << (count >> digits).bit_length()
    return (count + step // 2) // step * step


def round_up(count: int, digits: int) -> int:
    """To the next number of so many binary digits."""
    step = 1 << (count >> digits).bit_length()
    return ceil_div(count, step) * step


def round_up_length(count: int) -> int:
    """A length, rounded up: what is cut into blocks has as many as it will have."""
    return round_up(count, LENGTH)
