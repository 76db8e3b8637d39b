"""Optimizer steps on local tensors: one call switches them on for one optimizer.

from shardbench import accelerate_optimizer

accelerated = accelerate_optimizer(optimizer)
train()
print(accelerated.info())
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from harness.contract import SupportedReleases, UsageError

SUPPORTED = SupportedReleases("torch", ("2.13.0", "2.15.0"))


class OptimizerInfo(NamedTuple):
    """Parameters in the last step: those stepped on local tensors, and torch's by reason."""

    local: int
    by_torch: Mapping[str, int]


class accelerate_optimizer(AbstractContextManager["accelerate_optimizer"]):  # noqa: N801 - a call
    """Steps of a torch optimizer on the local tensors of its DTensors, with torch's results.

    The optimizer stays the same object with the same state, and `step` runs its hooks and closure.
    The acceleration ends with `stop` or with the `with` block. Torch steps all parameters that
    local tensors are not enough for. On a release that was not tested, warn and change nothing.

    Args:
        optimizer: Any optimizer of torch. A copy of it, or one from a pickle, is not accelerated.
        any_release: Accelerate on any installed release of torch, tested or not.

    Raises UsageError if the argument is no optimizer, or is accelerated already.
    """

    def __init__(self, optimizer: Optimizer, *, any_release: bool = False) -> None:
        if not isinstance(optimizer, Optimizer):
            raise UsageError(f"A torch optimizer is needed, not {type(optimizer).__name__}.")
        if "_init_group" in vars(optimizer):
            raise UsageError("This optimizer is accelerated already; stop that one first.")
        self._optimizer = weakref.ref(optimizer)
        self._splits: dict[int, Any] = {}
        self._step: Callable[..., tuple[Any, Any]]
        self._info = OptimizerInfo(0, {})
        self._clip = torch.nn.utils.clip_grad_norm_
        if SUPPORTED.allow("accelerate_optimizer()", torch.__version__, any_release=any_release):
            # Another release of torch may lack names that these modules import.
            from planners.dtensor.optimizer import muon
            from planners.dtensor.optimizer.clipping import Clipping
            from planners.dtensor.optimizer.local_rule import rule_of, step
            from planners.dtensor.optimizer.obstacles import RULE

            self._clip = Clipping()
            if rule := rule_of(optimizer):
                self._step = partial(step, rule)
                optimizer._init_group = self._init_group
            elif type(optimizer) is torch.optim.Muon:
                self._step = muon.step
                optimizer._init_group = self._init_group
            else:
                count = sum(len(group["params"]) for group in optimizer.param_groups)
                self._info = OptimizerInfo(0, {RULE: count})

    def _init_group(self, group: dict[str, Any], *columns: list[Any]) -> Any:
        """Collect a group's tensors as torch does, and step on those with local tensors.

        Torch's `step` calls this for each group and then steps on what is left in `columns`.
        """
        known = self._splits.get(id(group))
        returned, split = self._step(self._optimizer(), group, columns, known)
        self._splits[id(group)] = split
        return returned

    def clip_grad_norm_(
        self,
        parameters: torch.Tensor | Iterable[torch.Tensor],
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> torch.Tensor:
        """Clip gradients as `torch.nn.utils.clip_grad_norm_`, on local tensors where possible.

        The parameters need not be those of the optimizer. The norm equals torch's up to rounding.
        After `stop`, and on a release that was not tested, torch's function runs.
        """
        return self._clip(parameters, max_norm, norm_type, error_if_nonfinite, foreach)

    def info(self) -> OptimizerInfo:
        """Return the numbers of parameters in the last step; `stop` keeps them."""
        optimizer = self._optimizer()
        if optimizer is not None:  # drop groups of before a state was loaded
            ids = set(map(id, optimizer.param_groups))
            self._splits = {key: split for key, split in self._splits.items() if key in ids}
        splits = [split for split in self._splits.values() if split is not None]
        if splits:
            by_torch = sum((Counter(split.by_torch) for split in splits), Counter[str]())
            self._info = OptimizerInfo(sum(split.local for split in splits), dict(by_torch))
        return self._info

    def stop(self) -> None:
        """Leave all further steps to torch; forget everything except `info`."""
        self.info()
        self._splits.clear()
        self._clip = torch.nn.utils.clip_grad_norm_
        optimizer = self._optimizer()
        if optimizer is not None and vars(optimizer).get("_init_group") == self._init_group:
            del optimizer._init_group

    def __exit__(self, *_: object) -> None:
        self.stop()
