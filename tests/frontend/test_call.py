"""`fd(x, y)`."""

from typing import Any

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.errors import InputError

X = np.array([1, 2, 3], np.float32)


def defined(outputs: int, updates: int = 0) -> FusionDefinition:
    with FusionDefinition() as fd:
        x, n = fd.define_tensor([-1], True), fd.define_scalar()
        for i in range(outputs):
            fd.add_output(x * n + float(i))
        for _ in range(updates):
            fd.add_output(x * n, x)
    return fd


def test_one_output_is_the_result() -> None:
    fd = defined(1)
    y = fd(X, 2.0)
    assert isinstance(y, np.ndarray)
    np.testing.assert_array_equal(y, 2 * X)
    np.testing.assert_array_equal(fd(X, 3.0, device="simulator"), 3 * X)
    # The two ways share what is compiled.
    np.testing.assert_array_equal(fd.execute([X, 4.0])[0], 4 * X)


def test_results_of_execute_are_a_plain_list() -> None:
    """Torch and JAX take trees apart by exact types; a subclass with attributes of its own would be a leaf to them."""
    for outputs in (1, 3):
        assert type(defined(outputs).execute([X, 2.0])) is list


def test_several_outputs_are_a_tuple() -> None:
    results = defined(3)(X, 2.0)
    assert isinstance(results, tuple)
    for i, y in enumerate(results):
        np.testing.assert_array_equal(y, 2 * X + i)


def test_updates_are_no_results() -> None:
    x = X.copy()
    assert defined(0, 1)(x, 2.0) == ()
    np.testing.assert_array_equal(x, 2 * X)
    y: Any = defined(1, 1)(x, 2.0)
    np.testing.assert_array_equal(y, 4 * X)


def test_mistakes() -> None:
    fd = defined(1)
    with pytest.raises(InputError):
        fd(X)
    with pytest.raises(InputError):
        fd(X, 1.0, 2.0)
    with pytest.raises(TypeError):
        fd([X, 2.0], dtype=1)  # type: ignore[reportCallIssue]
