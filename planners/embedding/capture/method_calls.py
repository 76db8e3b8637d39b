"""Listens to the calls of a method, whichever class derived from another has its own."""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def listening(base: type, method: str, listener: Callable[..., Any]) -> Iterator[None]:
    """Have a listener make each call of a method, of a class and of those derived from it.

    Of calls inside one another, as by `super()`, it makes the outermost in a thread.
    """
    inside = threading.local()

    def replacement(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(owner: Any, *args: Any, **kwargs: Any) -> Any:
            make = functools.partial(original, owner, *args, **kwargs)
            if getattr(inside, "a_call", False):
                return make()
            inside.a_call = True
            try:
                return listener(make, owner, *args, **kwargs)
            finally:
                inside.a_call = False

        return call

    with ExitStack() as restored:
        for kind in _derived(base):
            original = vars(kind).get(method)
            if callable(original) and not getattr(original, "__isabstractmethod__", False):
                restored.callback(setattr, kind, method, original)
                setattr(kind, method, replacement(original))
        yield


def _derived(base: type) -> set[type]:
    """Return a class and all that derive from it."""
    children: list[type] = base.__subclasses__()
    return {base}.union(*map(_derived, children))
