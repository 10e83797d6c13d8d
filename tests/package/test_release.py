import pytest

import fuser


def test_version():
    v = fuser.version()
    assert isinstance(v, str)
    assert v == fuser.__version__
    assert hash(v) == hash(fuser.version())


@pytest.mark.parametrize("other", ["0.1.0", "0.1", "0.1.0+cu12", "v0.1.0"])
def test_equal(other):
    v = fuser.version()
    assert v == other
    assert v <= other
    assert v >= other
    assert (v != other) is False
    assert not v < other
    assert not v > other


@pytest.mark.parametrize("older", ["0.0.9", "0.1.0rc1", "0.1.0.dev3", "0.1a1", "0"])
def test_newer(older):
    v = fuser.version()
    assert v > older
    assert v >= older
    assert v != older
    assert not v < older


@pytest.mark.parametrize("newer", ["0.1.1", "0.2", "0.10.0", "1.0.0rc1"])
def test_older(newer):
    v = fuser.version()
    assert v < newer
    assert v <= newer
    assert (v == newer) is False


@pytest.mark.parametrize("other", [1, None, 0.1, (0, 1), "one"])
def test_other_types(other):
    for compare in (lambda v: v == other, lambda v: v < other, lambda v: v >= other, lambda v: v != other):
        with pytest.raises(ValueError, match="version"):
            compare(fuser.version())


def test_packaging_versions():
    packaging = pytest.importorskip("packaging.version")
    assert fuser.version() < packaging.Version("9.0")
    assert fuser.version() == packaging.Version("0.1.0")
