"""The versions of DTensors, by which autograd notices that a saved tensor has changed.

Torch's ops in place on a DTensor raise its version, and leave the local tensor's alone. Torch's ops
in place on a list of DTensors raise none. Ops on local tensors raise the local versions instead.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter

import torch
from torch.distributed.tensor import DTensor

_VERSION = attrgetter("_version")
_set_versions = torch._C._autograd._unsafe_set_version_counter


def versions(tensors: Sequence[torch.Tensor]) -> tuple[int, ...] | None:
    """Return the tensors' versions; None if one is an inference tensor, which has no version."""
    try:
        return tuple(map(_VERSION, tensors))
    except RuntimeError:
        return None


@contextmanager
def raised_as_by_torch(
    tensors: Sequence[DTensor], local: Sequence[torch.Tensor], before: tuple[int, ...], listed: bool
) -> Iterator[None]:
    """Change the `local` tensors of DTensors in the block, and leave torch's versions.

    `before` are the local versions. `listed` says whether torch's ops take the DTensors as lists.
    """
    try:
        yield
    finally:
        if not listed:
            raised = zip(map(_VERSION, tensors), map(_VERSION, local), before, strict=True)
            _set_versions(tuple(tensors), tuple(own + now - old for own, now, old in raised))
        _set_versions(tuple(local), before)
