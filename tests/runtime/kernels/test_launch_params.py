"""Launch sizes that a caller asks for."""

import numpy as np
import pytest

from fuser.errors import InputTypeError, InputValueError
from fuser.runtime.kernels.launch_params import LaunchParams
from fuser.runtime.launch import Launch


def test_unset_extents_read_as_one() -> None:
    params = LaunchParams()
    assert (params.grid, params.block) == ((1, 1, 1), (1, 1, 1))
    assert params.extents == (-1,) * 6
    assert repr(params) == "LaunchParams()"
    params.bdimx = 128
    assert params.extents == (-1, -1, -1, 128, -1, -1)
    assert repr(params) == "LaunchParams(-1, -1, -1, 128, -1, -1)"
    params.bdimx = -1
    assert params == LaunchParams()


def test_all_extents() -> None:
    params = LaunchParams(1, 2, 3, 4, 5, np.int64(6), shared=100, cluster=[1, 2, 1])
    assert (params.gdimx, params.gdimy, params.gdimz, params.bdimx, params.bdimy, params.bdimz) == (1, 2, 3, 4, 5, 6)
    assert params.launch() == Launch((1, 2, 3), (4, 5, 6), 100, (1, 2, 1))
    assert params.launch().threads == 120
    assert repr(params) == "LaunchParams(1, 2, 3, 4, 5, 6, shared=100, cluster=(1, 2, 1))"
    assert eval(repr(params)) == params
    assert params != LaunchParams(1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "text"),
    [
        ((1,), {}, InputTypeError, "takes no extents or six"),
        ((0, 1, 1, 1, 1, 1), {}, InputValueError, "gdimx is at least 1, or -1 for unset; got 0"),
        ((1, 1, 1, 1, 1.0, 1), {}, InputTypeError, "bdimy is an integer, got float"),
        ((1, 1, 1, 1, 1, True), {}, InputTypeError, "bdimz is an integer, got bool"),
        ((), {"shared": -1}, InputValueError, "shared is a number of bytes, got -1"),
        ((), {"shared": 1.5}, InputTypeError, "shared is a number of bytes, got float"),
        ((), {"cluster": (1, 2)}, InputValueError, r"cluster is three extents \(x, y, z\), got \(1, 2\)"),
        ((), {"cluster": (1, 2, -1)}, InputValueError, "cluster is three extents of at least 1"),
        ((), {"cluster": (1, 2, 0)}, InputValueError, "cluster.z is at least 1"),
    ],
)
def test_wrong_extents(args: tuple[int, ...], kwargs: dict[str, int], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        LaunchParams(*args, **kwargs)  # type: ignore[arg-type]


def test_setting_a_wrong_extent() -> None:
    params = LaunchParams()
    with pytest.raises(InputValueError, match="gdimz is at least 1"):
        params.gdimz = 0
