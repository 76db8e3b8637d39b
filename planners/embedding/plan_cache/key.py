"""The key of a planning problem: a hash of everything that decides the plan."""

from enum import Enum
from typing import Any

import msgspec
import torchrec
from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import BasicCommsBandwidths, ShardEstimator, Topology
from torchrec.distributed.types import ModuleSharder

from harness.contract import ShardbenchError
from planners.embedding.capture.modules import sharded_modules
from planners.embedding.capture.recording import inputs_of, plain
from planners.embedding.capture.topology import device_runs
from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_cache.folder import digest
from planners.embedding.search.enumeration import DistinctShardEnumerator

FORMAT = 1
"""Raise it if a change of this project finds other plans for the same inputs."""

# A captured problem without the reservation (the memory that it leaves is in the key instead) and
# without what planning finds.
_INPUTS = ("topology", "batch_size", "sharders", "modules", "constraints", "planner")
_OWN_PACKAGES = ("torchrec", "planners")


def problem_inputs(
    planner: Planner, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
) -> bytes:
    """Return all inputs of a problem, except the memory that the storage reservation leaves.

    They depend on torchrec's release and on values, not on the process or the machine. Raises
    ShardbenchError if an input is unknown, such as a user's own estimator.
    """
    inputs = inputs_of(planner, module, sharders)
    if inputs.planner.obstacle:
        raise ShardbenchError(f"{inputs.planner.obstacle}.")
    bandwidths = type(planner._topology.comms_bandwidths)
    if bandwidths is not BasicCommsBandwidths:
        raise ShardbenchError(f"{bandwidths.__name__} is not torchrec's.")
    parts = [
        FORMAT,
        getattr(torchrec, "__version__", "a checkout"),
        {name: getattr(inputs, name) for name in _INPUTS},
        _stashed(module, sharders),
        _enumerator(planner),
    ]
    return msgspec.json.encode(parts, order="deterministic", enc_hook=plain)


def key_of(inputs: bytes, left: Topology) -> str:
    """Return the key of a problem; `left` is the topology after the storage reservation."""
    return digest(inputs, msgspec.json.encode(device_runs(left)), letters=32)


def _stashed(module: nn.Module, sharders: list[ModuleSharder[nn.Module]]) -> list[str]:
    """Return the tables with weights that are stashed, which the captured inputs lack."""
    return [
        config.name
        for sharded in sharded_modules(module, sharders)
        for config, _ in sharded.configs()
        if getattr(config, "stash_weights", False)
    ]


def _enumerator(planner: Planner) -> list[Any]:
    """Describe the planner's enumerator and its estimators."""
    enumerator = planner._enumerator
    if type(enumerator) not in (EmbeddingEnumerator, DistinctShardEnumerator):
        raise ShardbenchError(f"{type(enumerator).__name__} is not torchrec's enumerator.")
    _check_same(enumerator, planner)
    plain_settings = {
        name: value
        for name, value in vars(enumerator).items()
        if value is None or isinstance(value, int | str)
    }
    memory = getattr(enumerator, "_device_memory_sizes", None)  # not in every release
    return [
        {name: plain_settings[name] for name in plain_settings if not name.startswith("_last")},
        memory and [int(size) for size in memory],
        [_estimator(estimator, planner) for estimator in enumerator._estimators],
    ]


def _estimator(estimator: ShardEstimator, planner: Planner) -> list[Any]:
    _check_same(estimator, planner)
    shared = ("_topology", "_constraints")
    return _described(estimator, {n: v for n, v in vars(estimator).items() if n not in shared})


def _check_same(component: Any, planner: Planner) -> None:
    """Raise ShardbenchError if a component has another topology or constraints."""
    for name in ("_topology", "_constraints"):
        if getattr(component, name, getattr(planner, name)) is not getattr(planner, name):
            raise ShardbenchError(f"{type(component).__name__} has a {name[1:]} of its own.")


def _described(held: Any, values: dict[str, Any]) -> list[Any]:
    """Describe an object of torchrec or shardbench by its class and its values."""
    kind = type(held)
    if kind.__module__.partition(".")[0] not in _OWN_PACKAGES:
        raise ShardbenchError(f"{kind.__name__} is neither torchrec's nor shardbench's.")
    return [kind.__module__, kind.__qualname__, {n: _value(v) for n, v in values.items()}]


def _value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    try:
        return msgspec.to_builtins(value, enc_hook=plain)
    except (TypeError, ValueError):
        # torchrec fills in `_coefficients` at their first use, from annotations of the class.
        return _described(value, {n: v for n, v in vars(value).items() if n != "_coefficients"})
