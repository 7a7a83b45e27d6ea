"""A fused method, bound to the object it is called on."""

from __future__ import annotations

from typing import Any

from itfuse.plan.stages import Plan


class BoundFused:
    """A fused method of one object, which is part of the signature and is not kept alive."""

    __slots__ = ("__self__", "fused")
    _leads_to = ("fused", "__self__")

    def __init__(self, fused: Any, instance: Any) -> None:
        self.fused = fused
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the method."""
        return self.fused(self.__self__, *args, **kwargs)

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """Return the plan of a call; see `Fused.plan`."""
        plan: Plan = self.fused.plan(self.__self__, *args, **kwargs)
        return plan

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """Return what a call would do; see `Fused.explain`."""
        text: str = self.fused.explain(self.__self__, *args, **kwargs)
        return text

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Compile what a call runs; see `Fused.build`."""
        return self.fused.build(self.__self__, *args, **kwargs)

    def clear(self) -> None:
        """Forget every trace, of all objects."""
        self.fused.clear()

    def __getattr__(self, name: str) -> Any:
        """Return what it has of the function: its name, `traces`, `signatures`."""
        if name.startswith("_") and name not in ("__name__", "__qualname__", "__wrapped__"):
            raise AttributeError(name)
        return getattr(self.fused, name)

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.fused.__qualname__.rpartition(".")[2])

    def __repr__(self) -> str:
        return f"<{self.fused!r} of {self.__self__!r}>"
