"""Expressions as iterators of cuda.compute: what they refuse, and that its algorithms build."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import nvrtc, stub_driver

import itfuse as itf

BUILD = """
import gc, sys, weakref
import numpy as np
import cuda.compute as cc
from support import fake_cupy
import itfuse as itf

def built(x, y, factor):
    expression = itf.asarray(x) * factor + itf.asarray(y)[::-1]
    iterator = expression.as_iterator()
    out, places = cc.ProxyArray("float32"), cc.ProxyArray(np.uintp)
    to = {"compute_capability": [90]}
    made = (
        cc.make_reduce_into(d_in=iterator, d_out=out, op=cc.OpKind.PLUS,
                            h_init=np.zeros(1, "f4"), **to),
        cc.make_lower_bound(d_data=out, d_values=iterator, d_out=places, **to),
    )
    print(*[len(cc.serialize(one)) > 5000 for one in made])
    return iterator

with fake_cupy.installed() as cp:
    first = itf.engines.engine_for("cuda:0")
    first.arch = "sm_90"
    for name in ("itfuse.engines.cuda.cub", "cuda.bindings.driver"):  # the real ones from here
        del sys.modules[name]
    x, y = (cp.asarray(np.arange(40, dtype="f4")) for _ in "xy")
    one, two = built(x, y, 2.0), built(y, x, 3.0)
    print(one.shape, one.dtype, one.kind == two.kind, bytes(one.state) == bytes(two.state))
    address, alive = x.data.ptr, weakref.ref(x)
    further = one + 1
    del x, y, one, two
    gc.collect()
    print(alive() is not None, further.arrays[0].data.ptr == address)
    del further
    gc.collect()
    print(alive() is None)
"""


@pytest.mark.skipif(bool(stub_driver.why_not()), reason=stub_driver.why_not())
def test_algorithms_of_cuda_compute_build_on_expressions(tmp_path: Path) -> None:
    nvrtc.require()
    done = stub_driver.run_with_stub(BUILD, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "True True",
        "True True",
        "(40,) float32 True False",  # the state is in no key
        "True True",
        "True",
    ]


def test_what_is_no_iterator_says_why() -> None:
    x = itf.asarray(np.ones(5))
    with pytest.raises(itf.DeviceError, match=r"as_iterator\(a \* 2.0\): it is on cpu"):
        (x * 2).as_iterator()
    with pytest.raises(itf.DeviceError, match="none"):
        itf.spec((3,), "f4").as_iterator()
