"""Device functions that acquire what other blocks published by the same element, and that publish something by it.

fuser_add_acquire(element, n)    adds n to an Int32 of device memory and returns what was there
fuser_add_release(element, n)    adds n to an Int32, behind what the thread knows to have been stored
fuser_load_acquire(element)      an Int32

A fence behind a plain atomic would acquire the same, but waits for all that the thread has stored as well. A fence in front of
one would publish the same, but only what its own thread has stored counts there, so that all threads of a block wait for one.
"""

from __future__ import annotations

ACQUIRE_FUNCTIONS = {
    "fuser_add_acquire": """\
__device__ __forceinline__ int fuser_add_acquire(int* element, int n) {
  int old;
  asm volatile("atom.acquire.gpu.global.add.s32 %0, [%1], %2;" : "=r"(old) : "l"(element), "r"(n) : "memory");
  return old;
}""",
    "fuser_add_release": """\
__device__ __forceinline__ void fuser_add_release(int* element, int n) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" :: "l"(element), "r"(n) : "memory");
}""",
    "fuser_load_acquire": """\
__device__ __forceinline__ int fuser_load_acquire(const int* element) {
  int found;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(found) : "l"(element) : "memory");
  return found;
}""",
}
