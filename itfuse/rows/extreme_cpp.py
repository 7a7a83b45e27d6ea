"""C++ that merges the extremes of two parts of a reduction: one instruction that hands on a NaN.

Of zeros of both signs it takes the extreme one, in whatever order they come; NumPy leaves open
which of them a reduction returns. `minimum` and `maximum` of elements return what NumPy returns.
"""

from __future__ import annotations


def _extreme(name: str, sign: str) -> str:
    return f"""
__device__ __forceinline__ float itf_{name}(float a, float b) {{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float r;
  asm("{name}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return (a {sign} b || a != a) ? a : b;
#endif
}}
"""


MIN = _extreme("min", "<")
MAX = _extreme("max", ">")
