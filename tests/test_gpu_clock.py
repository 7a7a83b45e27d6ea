"""The benchmark's GPU clock, on a stand-in for CuPy: rounds, graphs, calls timed by the wall."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from itfuse.bench import gpu


class Event:
    """Each recorded event is a millisecond later than the last."""

    clock = itertools.count()

    def record(self) -> None:
        self.at = next(Event.clock)

    def synchronize(self) -> None:
        pass


class Graph:
    launches = 0

    def launch(self) -> None:
        Graph.launches += 1


class Stream:
    fails = False

    def __init__(self, **options: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def begin_capture(self) -> None:
        pass

    def end_capture(self) -> Graph:
        if Stream.fails:
            raise RuntimeError("not in a capture")
        return Graph()


class FakeCuda:
    Event, Stream = Event, Stream

    @staticmethod
    def get_current_stream() -> Stream:
        return Stream()

    @staticmethod
    def get_elapsed_time(start: Event, end: Event) -> float:
        return float(end.at - start.at)


class FakeCuPy:
    cuda = FakeCuda


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> gpu.CudaDevice:
    made: Any = object.__new__(gpu.CudaDevice)
    made.cupy, made.device = FakeCuPy, Stream()
    made._hold = lambda *launch: None
    monkeypatch.setattr(Stream, "fails", False)
    monkeypatch.setattr(Graph, "launches", 0)
    return made  # type: ignore[no-any-return]


def test_calls_run_in_turn_between_their_events(device: gpu.CudaDevice) -> None:
    seen: list[str] = []
    calls = {name: lambda k, name=name: seen.append(name) for name in "ABC"}
    found = device.measure(calls, repeat=2)
    assert seen == list("ABC") * (1 + gpu.WARM_UP + 2) or len(seen) > 15  # a slow host: once more
    assert seen[:3] == seen[3:6] == list("ABC")
    assert [one.median for one in found.values()] == [1e-3] * 3
    assert {one.method for one in found.values()} == {"events"}


def test_small_calls_are_replayed(device: gpu.CudaDevice) -> None:
    numbers: list[int] = []
    found = device.measure({"A": numbers.append, "B": len_of}, 2, replay=["A"], sets=5)
    assert found["A"].method == "graph of 30"  # whole rotations over five sets, about 32 calls
    assert found["A"].median == pytest.approx(1e-3 / 30)
    assert numbers[1:] == [*range(30), *range(30)]  # once to fill the pool, once captured
    assert Graph.launches >= 1 + gpu.WARM_UP + 2
    assert found["B"].method == "events"


def test_more_sets_than_calls_are_replayed_whole(device: gpu.CudaDevice) -> None:
    assert device.measure({"A": len_of}, 1, replay=["A"], sets=40)["A"].method == "graph of 40"


def len_of(number: int) -> int:
    return number


def test_what_cannot_be_captured_is_timed_call_by_call(
    device: gpu.CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stream, "fails", True)
    found = device.measure({"A": len_of}, 2, replay=["A"], sets=1)
    assert (found["A"].method, found["A"].median) == ("events", 1e-3)


def test_other_streams_are_timed_by_the_wall(device: gpu.CudaDevice) -> None:
    waited: list[object] = []
    found = device.measure({"A": len_of, "J": len_of}, 3, waits={"J": waited.append})
    assert found["J"].method == f"wall, {gpu._BATCH} calls"
    assert len(waited) == gpu.WARM_UP + 3  # once for each batch, the last call's result
    assert 0 < found["J"].median < 1e-3
    assert found["A"].method == "events"
