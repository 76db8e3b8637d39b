"""DTensors made without the two wrappers that torch puts around an empty constructor."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.distributed.tensor import DTensor

from planners.dtensor.dispatch.torch_path import modes_active


@contextmanager
def made_plainly() -> Iterator[None]:
    """Let torch make its DTensors so until left, but for those that are traced or exported."""
    wrapped = DTensor.__init__

    def plain(self: DTensor, *args: Any, **kwargs: Any) -> None:
        if modes_active() or torch.compiler.is_exporting():
            wrapped(self, *args, **kwargs)

    plain._torchdynamo_disable = True  # type: ignore[attr-defined] # as torch's own is marked
    with mock.patch.object(DTensor, "__init__", plain):
        yield
