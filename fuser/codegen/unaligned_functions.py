"""Device functions for loads from any address.

Such a load takes the three units of half its size that its bytes lie in, and shifts them into place. Each unit holds a byte
that is asked for (the third is left out where none of its is), so that what lies beside it is in the same memory.
"""

from __future__ import annotations

UNALIGNED_FUNCTIONS: dict[str, str] = {
    "fuser_offset_in": """
template <class T> INLINE unsigned fuser_offset_in(const void* p) {
  return (unsigned)((unsigned long long)p & (sizeof(T) - 1));
}
""",
    # A difference, and no mask: the address stays known to be one of device memory.
    "fuser_floor": """
template <class T> INLINE const T* fuser_floor(const void* p) {
  return (const T*)((const char*)p - ((unsigned long long)p & (sizeof(T) - 1)));
}
""",
    "fuser_realign": """
INLINE uint2 fuser_realign(unsigned a, unsigned b, unsigned c, unsigned offset) {
  return make_uint2(__funnelshift_r(a, b, offset * 8), __funnelshift_r(b, c, offset * 8));
}
INLINE uint4 fuser_realign(uint2 a, uint2 b, uint2 c, unsigned offset) {
  const bool odd = offset & 4;
  const unsigned v = odd ? a.y : a.x, w = odd ? b.x : a.y, x = odd ? b.y : b.x, y = odd ? c.x : b.y;
  const unsigned z = odd ? c.y : c.x, shift = (offset & 3) * 8;
  return make_uint4(__funnelshift_r(v, w, shift), __funnelshift_r(w, x, shift),
                    __funnelshift_r(x, y, shift), __funnelshift_r(y, z, shift));
}
""",
}
