import sys
import types

import pytest

from fuser import FusionDefinition, LRUCache, LruFusionCache


class FakeExecutorCache:
    def __init__(self, fusion):
        self._fusion = fusion

    def fusion(self):
        return self._fusion


@pytest.fixture(autouse=True)
def _without_compiler(monkeypatch):
    """The caches only need an object that takes the fusion over."""
    module = types.ModuleType("fuser.compiler.executor_cache")
    module.FusionExecutorCache = FakeExecutorCache
    monkeypatch.setitem(sys.modules, "fuser.compiler.executor_cache", module)


def definition(constant):
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.add(fd.define_tensor([-1]), constant))
    return fd


def test_equal_fusions_share_a_cache():
    cache = LRUCache(max_fusions=2)
    first, second, other = definition(1.0), definition(1.0), definition(2.0)
    first.fec = cache.cache_compile(first.fusion)
    del first._fusion
    second.fec = cache.cache_compile(second.fusion)
    del second._fusion
    assert first.fec is second.fec
    assert first.fusion is first.fec.fusion()
    assert cache.cache_compile(other.fusion) is not first.fec
    assert cache.num_fusions() == 2


def test_stats():
    cache = LRUCache(2)
    assert cache.stats() == "Max Fusions Allowed: 2\nThe fusion cache is empty.\n"
    for constant in (1.0, 2.0, 1.0):
        cache.cache_compile(definition(constant).fusion)
    assert cache.stats() == (
        "Max Fusions Allowed: 2\n"
        "Total Fusions in Cache: 2\n"
        "Total Unique Fusions Compiled: 2\n"
        "Cache Hits by LRU ordering:\n"
        "\t0 -> 1 hits\n"
        "\t1 -> 0 hits\n"
        "Cache Lookups: 3\n"
        "Cache Hits: 1\n"
        "Hit Rate: 33.3333%\n"
    )


def test_least_recently_used_is_evicted():
    cache = LRUCache(2)
    kept = cache.cache_compile(definition(1.0).fusion)
    dropped = cache.cache_compile(definition(2.0).fusion)
    cache.cache_compile(definition(1.0).fusion)
    cache.cache_compile(definition(3.0).fusion)
    assert cache.num_fusions() == 2
    assert cache.cache_compile(definition(1.0).fusion) is kept
    assert cache.cache_compile(definition(2.0).fusion) is not dropped


@pytest.mark.parametrize("size", [0, -1])
def test_size_must_be_positive(size):
    with pytest.raises(RuntimeError, match="max_fusions must be positive"):
        LRUCache(size)


def test_argument_types():
    with pytest.raises(TypeError):
        LRUCache("2")
    with pytest.raises(TypeError, match="cache_compile"):
        LRUCache(1).cache_compile(definition(1.0))


def test_decorator():
    @LruFusionCache(max_fusions=4)
    def make(constant):
        """Doc."""
        return definition(constant)

    a, b = make(1.0), make(1.0)
    assert a is not b
    assert a.fec is b.fec
    assert not hasattr(a, "_fusion")
    assert make.num_fusions() == 1
    assert "Cache Hits: 1\n" in make.stats()
    assert make.__doc__ == "Doc."
    make(2.0)
    assert make.num_fusions() == 2


def test_taken_over_fusions_are_closed():
    from fuser import Fusion, FusionGuard, define_tensor, ops

    fusion = Fusion()
    with FusionGuard(fusion):
        x = define_tensor([2])
        fusion.add_input(x)
        fusion.add_output(ops.neg(x))
        LRUCache(1).cache_compile(fusion)
        with pytest.raises(RuntimeError, match="nothing can be added"):
            ops.neg(x)
