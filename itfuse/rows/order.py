"""Rows of the table that put floats in the order of unsigned integers, and back."""

from __future__ import annotations

import numpy as np

from itfuse import reference
from itfuse.rows.op import INDEX, Op

_TO = """
template <typename U, typename T> __device__ __forceinline__ U itf_sort_key(T x) {
  const U sign = (U)((U)1 << (8 * sizeof(U) - 1));
  U bits;
  memcpy(&bits, &x, sizeof(U));
  if (x != x) return (U)~(U)0;
  if (x == T(0)) return sign;
  return (bits & sign) ? (U)~bits : (U)(bits | sign);
}
"""
_FROM = """
template <typename T, typename U> __device__ __forceinline__ T itf_from_sort_key(U key) {
  const U sign = (U)((U)1 << (8 * sizeof(U) - 1));
  const U bits = (key & sign) ? (U)(key ^ sign) : (U)~key;
  T x;
  memcpy(&x, &bits, sizeof(U));
  return x;
}
"""

# For algorithms that compare bits. Both zeros are one key, and every NaN is the greatest.
ROWS = (
    Op(
        "sort_key", 1, INDEX, "An unsigned integer that sorts as the number does.",
        numpy=reference.sort_key,
        result=lambda x: ((x,), np.dtype(f"u{x.itemsize}")),
        cpp={
            "float16->uint16": "itf_sort_key<{T}>(itf_half({0}))",
            "bfloat16->uint16": "itf_sort_key<{T}>(itf_bfloat({0}))",
            "*": "itf_sort_key<{T}>({0})",
        },
        helper={"*": (_TO,)},
    ),
    Op(
        "from_sort_key", 1, INDEX, "The number of a `sort_key`, in the dtype of the node.",
        numpy=reference.from_sort_key,
        cpp={
            "uint16->float16": "itf_from_sort_key<itf_half>({0})",
            "uint16->bfloat16": "itf_from_sort_key<itf_bfloat>({0})",
            "*": "itf_from_sort_key<{T}>({0})",
        },
        helper={"*": (_FROM,)},
    ),
)  # fmt: skip
