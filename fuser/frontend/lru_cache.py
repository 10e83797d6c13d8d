"""Caches of executor caches keyed by the structure of fusions."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fuser import locks
from fuser.errors import DefinitionRuntimeError, DefinitionTypeError
from fuser.frontend.fusion_handle import Fusion
from fuser.source_location import caller_location
from fuser.tracebacks import short_traceback, short_tracebacks

if TYPE_CHECKING:
    from fuser.compiler.executor_cache import FusionExecutorCache
    from fuser.frontend.definition import FusionDefinition
    from fuser.ir.fusion.fusion import Fusion as IrFusion


@short_tracebacks
class LRUCache:
    """At most `max_fusions` executor caches, one per fusion structure; the least recently used is evicted. Thread safe.

    Raises DefinitionRuntimeError if `max_fusions` is not positive.
    """

    def __init__(self, max_fusions: int) -> None:
        if isinstance(max_fusions, bool) or not isinstance(max_fusions, int):
            raise DefinitionTypeError(
                f"LRUCache(): incompatible function arguments. max_fusions must be an int, got "
                f"{type(max_fusions).__name__}",
                location=caller_location(),
            )
        if max_fusions <= 0:
            raise DefinitionRuntimeError(f"max_fusions must be positive, got {max_fusions}", location=caller_location())
        self.max_fusions = max_fusions
        self._lock = locks.lock()
        # Most recently used first.
        self._entries: OrderedDict[IrFusion, FusionExecutorCache] = OrderedDict()
        self._entry_hits: dict[IrFusion, int] = {}
        self._lookups = 0
        self._hits = 0
        self._compiled = 0

    def cache_compile(self, fusion: Fusion) -> FusionExecutorCache:
        """The executor cache of an equal fusion, or a new one that takes `fusion` over."""
        if not isinstance(fusion, Fusion):
            raise DefinitionTypeError(
                f"cache_compile(): incompatible function arguments. Expected a Fusion, got {type(fusion).__name__}",
                location=caller_location(),
            )
        from fuser.compiler.executor_cache import FusionExecutorCache

        key = fusion.ir_fusion
        with self._lock:
            self._lookups += 1
            found = self._entries.get(key)
            if found is not None:
                self._hits += 1
                self._entry_hits[key] += 1
                self._entries.move_to_end(key, last=False)
                return found
            if len(self._entries) >= self.max_fusions:
                evicted, _ = self._entries.popitem(last=True)
                del self._entry_hits[evicted]
            fusion.close()
            made = FusionExecutorCache(fusion)
            self._entries[key] = made
            self._entries.move_to_end(key, last=False)
            self._entry_hits[key] = 0
            self._compiled += 1
            return made

    def num_fusions(self) -> int:
        """Number of fusions in the cache."""
        with self._lock:
            return len(self._entries)

    def stats(self) -> str:
        """Sizes, hits by recency and the hit rate, one a line."""
        with self._lock:
            lines = [f"Max Fusions Allowed: {self.max_fusions}"]
            if not self._entries:
                lines.append("The fusion cache is empty.")
            else:
                lines.append(f"Total Fusions in Cache: {len(self._entries)}")
                lines.append(f"Total Unique Fusions Compiled: {self._compiled}")
                lines.append("Cache Hits by LRU ordering:")
                lines += [f"\t{i} -> {self._entry_hits[key]} hits" for i, key in enumerate(self._entries)]
                rate = 100.0 * self._hits / self._lookups
                lines.append(f"Cache Lookups: {self._lookups}")
                lines.append(f"Cache Hits: {self._hits}")
                lines.append(f"Hit Rate: {rate:g}%")
            return "".join(f"{line}\n" for line in lines)


class CachedDefinition:
    """A function returning a FusionDefinition, whose executor cache comes from an LRUCache."""

    def __init__(self, function: Callable[..., FusionDefinition], max_fusions: int) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._cache = LRUCache(max_fusions)

    def __call__(self, *args: Any, **kwargs: Any) -> FusionDefinition:
        """The definition with `fec` set and `_fusion` gone."""
        fd = self._function(*args, **kwargs)
        fusion = fd.fusion
        if fusion is None:
            raise DefinitionTypeError(
                "LruFusionCache: the decorated function must return a FusionDefinition that has been defined",
                location=caller_location(),
            )
        fd.fec = self._cache.cache_compile(fusion)
        vars(fd).pop("_fusion", None)
        return fd

    def stats(self) -> str:
        """`LRUCache.stats`."""
        return self._cache.stats()

    def num_fusions(self) -> int:
        """`LRUCache.num_fusions`."""
        return self._cache.num_fusions()


@short_traceback
def LruFusionCache(max_fusions: int = 16384) -> Callable[[Callable[..., FusionDefinition]], CachedDefinition]:
    """Decorator for a function that returns a FusionDefinition: equal fusions share one executor cache."""

    def decorate(function: Callable[..., FusionDefinition]) -> CachedDefinition:
        return CachedDefinition(function, max_fusions)

    return decorate
