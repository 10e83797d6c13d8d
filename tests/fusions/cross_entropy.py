"""Cross entropy of rows of logits and its gradient, written as frameworks send them, and what NumPy says in float64.

Forward, the target's logit is gathered; backward, it is found by comparing the target with the columns. Rows whose target is
`IGNORED` count for nothing.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.ir.facts import TensorDescriptor

Array = np.ndarray[Any, Any]

IGNORED = -100
SMOOTHING = 0.1

VOCABULARIES = (1000, 30522, 32003, 50257, 50304, 128256, 250003)
DTYPES = (DataType.Half, DataType.BFloat16, DataType.Float)


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """Of rows, or their mean; `smoothing` of the labels; whether a target may be `IGNORED`; the gradient with respect to the
    logits, given that of the loss, in place of the loss."""

    is_mean: bool = True
    smoothing: float = 0.0
    ignores: bool = False
    backward: bool = False

    def __str__(self) -> str:
        words = ["backward" if self.backward else "forward", "mean" if self.is_mean else "rows"]
        return "-".join(words + ["smooth"] * (self.smoothing > 0) + ["ignored"] * self.ignores)

    def define(self, dtype: DataType, rows: int, vocabulary: int) -> FusionDefinition:
        """The definition. Its inputs are those of `arrays`."""
        with FusionDefinition() as fd:
            logits = fd.define_tensor([-1, -1], True, dtype)
            target = fd.define_tensor([-1], True, DataType.Int)
            if self.backward:
                given = fd.define_tensor([] if self.is_mean else [-1], True, DataType.Float)
                fd.add_output(fd.ops.cast(self._gradient(fd, logits, target, given, (rows, vocabulary)), dtype))
            else:
                fd.add_output(self._loss(fd, logits, target, (rows, vocabulary)))
        return fd

    def _loss(self, fd: FusionDefinition, logits: Any, target: Any, shape: tuple[int, int]) -> Any:
        o, (rows, vocabulary) = fd.ops, shape
        x = o.cast(logits, DataType.Float)
        top = o.max(x, [1])
        rest = o.sum(o.exp(o.sub(x, o.broadcast_in_dim(top, shape, [0]))), [1])
        log_sum = o.add(top, o.log(rest))
        valid = o.ne(target, IGNORED)
        column = o.where(valid, target, 0) if self.ignores else target
        hit = o.squeeze(o.take_along_axis(x, o.broadcast_in_dim(column, [rows, 1], [0]), 1), [1])
        loss = o.sub(log_sum, hit)
        if self.smoothing:
            spread = o.sub(log_sum, o.mul(o.sum(x, [1]), 1.0 / vocabulary))
            loss = o.add(o.mul(loss, 1.0 - self.smoothing), o.mul(spread, self.smoothing))
        if self.ignores:
            loss = o.where(valid, loss, 0.0)
        if not self.is_mean:
            return loss
        if self.ignores:
            return o.div(o.sum(loss, [0]), o.sum(o.cast(valid, DataType.Float), [0]))
        return o.mul(o.sum(loss, [0]), 1.0 / rows)

    def _gradient(self, fd: FusionDefinition, logits: Any, target: Any, given: Any, shape: tuple[int, int]) -> Any:
        o, (rows, vocabulary) = fd.ops, shape
        x = o.cast(logits, DataType.Float)
        e = o.exp(o.sub(x, o.broadcast_in_dim(o.max(x, [1]), shape, [0])))
        softmax = o.div(e, o.broadcast_in_dim(o.sum(e, [1]), shape, [0]))
        columns = o.broadcast_in_dim(o.iota(vocabulary, 0, 1, DataType.Int), shape, [1])
        hit = o.eq(columns, o.broadcast_in_dim(target, shape, [0]))
        found = o.where(hit, o.sub(softmax, 1.0 - self.smoothing), softmax)
        if self.smoothing:
            found = o.sub(found, self.smoothing / vocabulary)
        if not self.is_mean:
            scale = o.broadcast_in_dim(given, shape, [0])
        elif self.ignores:
            count = o.sum(o.cast(o.ne(target, IGNORED), DataType.Float), [0])
            scale = o.broadcast_in_dim(o.div(given, count), shape, [])
        else:
            scale = o.broadcast_in_dim(o.mul(given, 1.0 / rows), shape, [])
        found = o.mul(found, scale)
        if self.ignores:
            found = o.where(o.broadcast_in_dim(o.ne(target, IGNORED), shape, [0]), found, 0.0)
        return found

    def arrays(self, dtype: DataType, rows: int, vocabulary: int) -> list[Array]:
        """Inputs of some rows: the last target is `IGNORED` where one may be, the first one is the last column."""
        random = np.random.default_rng(vocabulary)
        logits = (3 * random.standard_normal((rows, vocabulary), dtype=np.float32)).astype(dtype.numpy)
        target = random.integers(0, vocabulary, rows)
        target[0] = vocabulary - 1
        if self.ignores:
            target[-1] = IGNORED
        if not self.backward:
            return [logits, target]
        return [logits, target, random.uniform(0.5, 1.5, () if self.is_mean else rows).astype(np.float32)]

    def described(self, dtype: DataType, rows: int, vocabulary: int) -> list[TensorDescriptor]:
        """The same without data, to compile for."""
        found = [
            TensorDescriptor(dtype, (rows, vocabulary), (vocabulary, 1)),
            TensorDescriptor(DataType.Int, (rows,), (1,)),
        ]
        if self.backward:
            given = ((), ()) if self.is_mean else ((rows,), (1,))
            found.append(TensorDescriptor(DataType.Float, *given))
        return found

    def expected(self, arrays: list[Array]) -> Array:
        """The result in float64."""
        x, target = arrays[0].astype(np.float64), arrays[1]
        rows, vocabulary = x.shape
        valid = target != IGNORED
        count = valid.sum() if self.is_mean else 1
        column = np.where(valid, target, 0)
        e = np.exp(x - x.max(1, keepdims=True))
        if self.backward:
            found = e / e.sum(1, keepdims=True) - self.smoothing / vocabulary
            found[np.arange(rows), column] -= 1 - self.smoothing
            return found * valid[:, None] * (arrays[2].astype(np.float64) / count).reshape(-1, 1)
        log_sum = x.max(1) + np.log(e.sum(1))
        loss = (1 - self.smoothing) * (log_sum - x[np.arange(rows), column]) + self.smoothing * (log_sum - x.mean(1))
        loss = loss * valid
        return loss.sum() / count if self.is_mean else loss

    def check(self, found: Array, arrays: list[Array]) -> None:
        """AssertionError unless a result is right: a loss to a few roundings of Float, a gradient to those of its type."""
        expected = self.expected(arrays)
        assert found.shape == expected.shape
        if not self.backward:
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-6)
            return
        scale = np.abs(expected).max(1, keepdims=True)
        # What a softmax loses is relative to it: a difference from 1 loses up to half a unit of that.
        unit = {DataType.Half: 2.0**-11, DataType.BFloat16: 2.0**-8}.get(dtype_of(arrays[0]), 2.0**-22)
        least = 2.0**-24 if dtype_of(arrays[0]) is DataType.Half else 0.0
        error = np.abs(found.astype(np.float64) - expected)
        assert (error <= 1.01 * unit * np.abs(expected) + 2.0**-23 * scale + least).all(), error.max()


def dtype_of(array: Array) -> DataType:
    """The type of an array of logits."""
    return next(d for d in DTYPES if d.numpy == array.dtype)


ALL = tuple(
    CrossEntropy(is_mean, smoothing, ignores, backward)
    for backward, is_mean, smoothing, ignores in itertools.product(
        (False, True), (True, False), (0.0, SMOOTHING), (False, True)
    )
)
