"""Device functions for asynchronous copies: cp.async from sm_80 on, plain loads and stores before.

fuser_copy_async_<bytes>(shared, device)   4, 8 or 16 bytes, both aligned to as many; 16 go past the first-level cache
fuser_commit_copies()                      what the thread has started becomes a group
fuser_wait_copies<n>()                     all groups of the thread but the latest n are complete
"""

from __future__ import annotations

_ACCESS_TYPES = {4: "unsigned int", 8: "uint2", 16: "uint4"}


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
    **{f"fuser_copy_async_{nbytes}": _copy(nbytes) for nbytes in _ACCESS_TYPES},
    "fuser_commit_copies": """\
__device__ __forceinline__ void fuser_commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
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
