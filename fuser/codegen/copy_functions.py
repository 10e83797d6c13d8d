"""Device functions for asynchronous copies: cp.async from sm_80 on, plain loads and stores before.

fuser_copy_async_<bytes>(shared, device)   4, 8 or 16 bytes, both aligned to as many; 16 go past the first-level cache
fuser_commit_copies()                      what the thread has started becomes a group
fuser_wait_copies<n>()                     all groups of the thread but the latest n are complete

What blocks of a cluster store into one another's shared memory is counted by a barrier of the receiver, from sm_90 on:

fuser_expect_bytes(told, n)                the block's first thread: the barrier waits for n bytes, once. The warp may
                                           initialise it in one instruction, which racecheck counts as another lane's
fuser_wait_bytes(told)                     until they have come
"""

from __future__ import annotations

_ACCESS_TYPES = {4: "unsigned int", 8: "uint2", 16: "uint4"}

# A policy is a number that the second-level cache understands. Not volatile: one serves all accesses of a thread.
_POLICY = """\
__device__ __forceinline__ unsigned long long fuser_evict_last() {
  unsigned long long policy = 0;
#if __CUDA_ARCH__ >= 800
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
#endif
  return policy;
}"""


def _load_last() -> str:
    """Reads of 4, 8 or 16 bytes whose lines are the last to leave the second-level cache.

    In the first-level cache they have no such place: what all rows share is to stay there.
    """
    texts: list[str] = []
    for nbytes, access in _ACCESS_TYPES.items():
        count = nbytes // 4
        parts = ["r"] if count == 1 else [f"r.{part}" for part in "xyzw"[:count]]
        places = ", ".join(f"%{k}" for k in range(count))
        vector = f".v{count}" if count > 1 else ""
        outputs = ", ".join(f'"=r"({part})' for part in parts)
        texts.append(
            f"""\
__device__ __forceinline__ {access} fuser_load_last(const {access}* device) {{
#if __CUDA_ARCH__ >= 800
  {access} r;
  asm volatile("ld.global.L2::cache_hint{vector}.u32 {{{places}}}, [%{count}], %{count + 1};" :
      {outputs} : "l"(__cvta_generic_to_global(device)), "l"(fuser_evict_last()));
  return r;
#else
  return *device;
#endif
}}"""
        )
    return "\n".join(texts)


def _copy(nbytes: int) -> str:
    # Only whole 16 bytes can be told to stay out of the first-level cache.
    level = "cg" if nbytes == 16 else "ca"
    access = _ACCESS_TYPES[nbytes]
    return f"""\
__device__ __forceinline__ void fuser_copy_async_{nbytes}(void* shared, const void* device) {{
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.{level}.shared.global [%0], [%1], {nbytes};" ::
      "r"((unsigned)__cvta_generic_to_shared(shared)), "l"(__cvta_generic_to_global(device)) : "memory");
#else
  *static_cast<{access}*>(shared) = *static_cast<const {access}*>(device);
#endif
}}"""


COPY_FUNCTIONS = {
    "fuser_evict_last": _POLICY,
    "fuser_load_last": _load_last(),
    **{f"fuser_copy_async_{nbytes}": _copy(nbytes) for nbytes in _ACCESS_TYPES},
    "fuser_commit_copies": """\
__device__ __forceinline__ void fuser_commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}""",
    "fuser_expect_bytes": """\
__device__ __forceinline__ void fuser_expect_bytes(void* told, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  const unsigned place = (unsigned)__cvta_generic_to_shared(told);
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(place) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncwarp(1u);
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(place), "r"(bytes) : "memory");
#endif
}""",
    "fuser_wait_bytes": """\
__device__ __forceinline__ void fuser_wait_bytes(void* told) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{\\n"
      ".reg .pred p;\\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\\n"
      "@!p bra again;\\n"
      "}" :: "r"((unsigned)__cvta_generic_to_shared(told)) : "memory");
#endif
}""",
    "fuser_wait_copies": """\
template <int pending>
__device__ __forceinline__ void fuser_wait_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" :: "n"(pending) : "memory");
#endif
}""",
}
