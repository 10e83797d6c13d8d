"""Values that a block posts to another one (Post, Receive): pairs of words, the bits and a flag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fuser.simulator.errors import Kind
from fuser.simulator.lanes import Array, Index, Lanes
from fuser.simulator.views import MemoryView, RegisterArray


def post(view: MemoryView, index: Index, values: Sequence[Any], lanes: Lanes, site: int) -> None:
    """Each active thread stores its values as pairs from word `index` on. The places must be empty."""
    first = np.broadcast_to(view.locate_pair(index, lanes, site), lanes.shape).reshape(-1)
    data = view.data
    word = 0
    for value in values:
        picked = np.ascontiguousarray(np.broadcast_to(lanes.pick(np.asarray(value)), lanes.shape).reshape(-1))
        for bits in _bits(picked):
            view.locate_pair(index + word, lanes, site)
            places = first + word
            full = data[places + 1] != 0
            _, number, count = np.unique(places, return_inverse=True, return_counts=True)
            full |= count[number] > 1
            if full.any():
                message = f"a post to {view.buffer.name}, where there is one that nobody has received"
                view.wave.report(Kind.lost_post, message, lanes.position(full.reshape(lanes.shape)), lanes, site)
            data[places], data[places + 1] = bits, 1
            view.note_atomics(places, lanes, site)
            view.note_atomics(places + 1, lanes, site)
            word += 2
    view.wave.clock.advance()
    view.wave.progress()


def receive(
    dsts: Sequence[RegisterArray], view: MemoryView, index: Index, step: Index, stop: Index, lanes: Lanes, site: int
) -> bool:
    """Whether every active thread has found all its posts; then they are in `dsts`, and their places are empty."""
    wave = view.wave
    wave.whole_warps(lanes, Kind.divergent_shuffle, "a receive", site)
    posts: list[tuple[int, Lanes, Index]] = []
    for k in range(dsts[0].size):
        at = index + k * step
        there = lanes.where(at < stop, wave.lanes)
        if there is not None:
            posts.append((k, there, at))
    offsets = list(_offsets([d.buffer.dtype.itemsize for d in dsts]))
    for _, there, at in posts:
        for word in (w for words in offsets for w in words):
            place = np.broadcast_to(view.locate_pair(at + word, there, site), there.shape)
            empty = view.data[place + 1] == 0
            if empty.any():
                wave.wait(view, place + 1, empty, there, site)
                return False
    for k, there, at in posts:
        for dst, words in zip(dsts, offsets, strict=True):
            parts: list[Array] = []
            for word in words:
                place = np.broadcast_to(view.locate_pair(at + word, there, site), there.shape).reshape(-1)
                parts.append(view.data[place])
                for one in (place, place + 1):
                    view.note_atomics(one, there, site, is_update=False)
                    view.clear(one, there, site)
            value = np.stack(parts, axis=-1).copy().view(dst.buffer.dtype.numpy).reshape(there.shape)
            dst.store(k, there.spread(value), there, site)
    wave.clock.advance()
    wave.progress()
    return True


def _bits(values: Array) -> list[Array]:
    """The Int32 words of each value, the low one first."""
    words = values.view(np.int32).reshape(len(values), -1)
    return [words[:, k] for k in range(words.shape[1])]


def _offsets(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Words of a post at which the pairs of each value begin."""
    word = 0
    for size in sizes:
        yield list(range(word, word + size // 2, 2))
        word += size // 2
