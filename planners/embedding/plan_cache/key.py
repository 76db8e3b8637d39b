"""The key of a planning problem: a hash of everything that decides the plan."""

from collections import Counter
from itertools import chain
from typing import Any

import msgspec
import torchrec
from torch import nn
from torchrec.distributed.planner.types import BasicCommsBandwidths, Topology
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

# Attributes of enumerators and their parts that hold what they found, not settings.
_FOUND = ("_last", "_sharder", "_stashed", "_special", "_coefficients", "postponed")


def problem_inputs(
    planner: Planner, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
) -> bytes:
    """Return all inputs of a problem, except the memory that the storage reservation leaves.

    They depend on torchrec's release and on values, not on the process or the machine. Raises
    ShardbenchError if an input is unknown, such as a user's own estimator.
    """
    inputs = inputs_of(planner, module, sharders)
    names = [table.name for captured in inputs.modules for table in captured.tables]
    if len(set(names)) < len(names):
        name, _ = Counter(names).most_common(1)[0]
        raise ShardbenchError(f"several modules have a table {name}, and a plan's file only names.")
    if inputs.planner.obstacle:
        raise ShardbenchError(f"{inputs.planner.obstacle}.")
    if type(planner._enumerator) is not DistinctShardEnumerator:
        raise ShardbenchError("the enumerator is the caller's own.")
    bandwidths = type(planner._topology.comms_bandwidths)
    if bandwidths is not BasicCommsBandwidths:
        raise ShardbenchError(f"{bandwidths.__name__} is not torchrec's.")
    parts = [
        FORMAT,
        getattr(torchrec, "__version__", "a checkout"),
        {name: getattr(inputs, name) for name in _INPUTS},
        _stashed(module, sharders),
        _described(planner._enumerator, planner),
    ]
    try:
        return msgspec.json.encode(parts, order="deterministic", enc_hook=plain)
    except TypeError as error:
        raise ShardbenchError(f"an input is unknown: {error}.") from None


def key_of(inputs: bytes, left: Topology) -> str:
    """Return the key of a problem; `left` is the topology after the storage reservation."""
    return digest(inputs, msgspec.json.encode(device_runs(left)), letters=32)


def _stashed(module: nn.Module, sharders: list[ModuleSharder[nn.Module]]) -> list[str]:
    """Return the tables with weights that are stashed, which the captured inputs lack."""
    configs = chain(*(sharded.configs() for sharded in sharded_modules(module, sharders)))
    return [config.name for config, _ in configs if getattr(config, "stash_weights", False)]


def _described(part: Any, planner: Planner) -> list[Any]:
    """Describe an enumerator, an estimator or its configuration by its class and its settings.

    Raises ShardbenchError for a user's own class, and for another topology than the planner's.
    """
    kind, settings = type(part), {}
    if kind.__module__.partition(".")[0] not in _OWN_PACKAGES:
        raise ShardbenchError(f"{kind.__name__} is neither torchrec's nor shardbench's.")
    for name, value in vars(part).items():
        if name in ("_topology", "_constraints"):
            if value is not getattr(planner, name):
                raise ShardbenchError(f"{kind.__name__} has a {name[1:]} of its own.")
        elif name == "_estimators":
            settings[name] = [_described(estimator, planner) for estimator in value]
        elif name in ("_config", "_estimator"):
            settings[name] = _described(value, planner)
        elif not name.startswith(_FOUND):
            settings[name] = value
    return [kind.__module__, kind.__qualname__, settings]
