"""Edges between commands: all that bytes in common ask for, and none that follows from others."""

from __future__ import annotations

import random

import pytest

from fuser.host_ir.instructions.dependencies import Dependencies, Range

Command = tuple[list[Range], list[Range]]
X, Y, Z = (0, 64), (64, 128), (128, 192)


def edges_of(commands: list[Command]) -> list[tuple[int, int]]:
    dependencies = Dependencies()
    return [(before, k) for k, (reads, writes) in enumerate(commands) for before in dependencies.add(reads, writes)]


def touch(a: list[Range], b: list[Range]) -> bool:
    return any(first < end and other < last and first < last and other < end for first, end in a for other, last in b)


def conflicts(earlier: Command, later: Command) -> bool:
    """Of two commands with bytes in common, one writes them."""
    return touch(earlier[1], [*later[0], *later[1]]) or touch(earlier[0], later[1])


def reachable(count: int, edges: list[tuple[int, int]]) -> set[tuple[int, int]]:
    """Pairs that a path joins."""
    before: list[set[int]] = [set() for _ in range(count)]
    for earlier, later in edges:
        before[later] |= before[earlier] | {earlier}
    return {(a, k) for k in range(count) for a in before[k]}


@pytest.mark.parametrize(
    ("commands", "edges"),
    [
        pytest.param(
            [([], [X]), ([X], [Y]), ([X], [Z]), ([Y, Z], [X])], [(0, 1), (0, 2), (1, 3), (2, 3)], id="diamond"
        ),
        pytest.param([([], [X]), ([X], [X]), ([X], [X])], [(0, 1), (1, 2)], id="chain"),
        pytest.param([([X], [Y]), ([], [X])], [(0, 1)], id="write_after_read"),
        pytest.param([([], [X]), ([], [X])], [(0, 1)], id="write_after_write"),
        pytest.param([([X], []), ([X], [])], [], id="read_after_read"),
        pytest.param([([], [(0, 8)]), ([], [(8, 16)]), ([(4, 12)], [])], [(0, 2), (1, 2)], id="two_halves"),
        pytest.param(
            [([], [(0, 16)]), ([], [(4, 8)]), ([(8, 16)], []), ([(4, 8)], [])], [(0, 1), (0, 2), (1, 3)], id="middle"
        ),
        pytest.param([([], [X]), ([(8, 8)], []), ([], [(8, 8)])], [], id="no_bytes"),
        pytest.param(
            [([], [X]), ([X], []), ([X, Y], [Z]), ([], [X])], [(0, 1), (0, 2), (1, 3), (2, 3)], id="two_readers"
        ),
    ],
)
def test_edges(commands: list[Command], edges: list[tuple[int, int]]) -> None:
    assert edges_of(commands) == edges


def test_commands_apart_share_no_edge() -> None:
    assert edges_of([([(k, k + 1)], [(10_000 + k, 10_001 + k)]) for k in range(1000)]) == []


@pytest.mark.parametrize("seed", range(200))
def test_random_commands(seed: int) -> None:
    """Edges and paths are those that every pair of commands, looked at by itself, asks for; no edge is also a longer path."""
    rng = random.Random(seed)
    size = rng.choice([8, 40, 200])

    def ranges(most: int) -> list[Range]:
        found: list[Range] = []
        for _ in range(rng.randrange(most + 1)):
            first = rng.randrange(size)
            found.append((first, min(first + rng.choice([0, 1, 4, size // 4]), size)))
        return found

    commands = [(ranges(3), ranges(2)) for _ in range(rng.randrange(1, 40))]
    edges = edges_of(commands)
    wanted = {(a, b) for b in range(len(commands)) for a in range(b) if conflicts(commands[a], commands[b])}
    paths = reachable(len(commands), edges)
    assert paths == reachable(len(commands), sorted(wanted, key=lambda e: e[1]))
    for edge in edges:
        assert edge not in reachable(len(commands), [e for e in edges if e != edge])


def test_paths_can_be_asked_for() -> None:
    dependencies = Dependencies()
    for reads, writes in [([], [X]), ([X], [Y]), ([Y], [Z]), ([], [(500, 501)])]:
        dependencies.add(reads, writes)
    assert dependencies.comes_after(2, 0)
    assert not dependencies.comes_after(0, 2)
    assert not dependencies.comes_after(3, 0)


def test_state_is_kept_of_what_is_open_alone() -> None:
    """A thousand commands over the same bytes leave a handful of runs behind."""
    dependencies = Dependencies()
    for k in range(1000):
        dependencies.add([X] if k % 2 else [Y], [Y] if k % 2 else [X])
    assert len(dependencies._firsts) <= 4
    assert all(len(s.readers) <= 1 for s in dependencies._states)


def test_a_range_that_ends_before_it_begins() -> None:
    with pytest.raises(ValueError, match=r"the bytes \[8, 4\) end before they begin"):
        Dependencies().add([(8, 4)], [])
