"""Run the rule of a torch optimizer on the local tensors of a group's parameters.

A rule takes columns: lists with an entry for each parameter. The first two columns are the
parameters and their gradients, each further column is one kind of state or empty.
"""

import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from planners.dtensor.optimizer import obstacles

Column = list[Any]
Group = dict[str, Any]
Rule = Callable[[Optimizer], Any]

_NAMES = "SGD Adam AdamW NAdam RAdam Adamax Adagrad Adadelta RMSprop ASGD"
RULES = frozenset(getattr(torch.optim, name) for name in _NAMES.split())
"""The elementwise rules of torch, except Rprop, which torch refuses for most DTensors."""

_SPEC, _LOCAL, _DIMENSIONS = map(attrgetter, ("_spec", "_local_tensor", "ndim"))
_GRADIENT, _VERSION = attrgetter("grad"), attrgetter("_version")
_set_versions = torch._C._autograd._unsafe_set_version_counter
_DTENSORS, _TENSORS = {DTensor}, {torch.Tensor}


@dataclass(frozen=True, slots=True)
class Split:
    """The numbers of a group's parameters that step on local tensors and by torch.

    If nothing differs, the next step is repeated from the other attributes.

    Attributes:
        local: the number of parameters that step on local tensors.
        by_torch: the number of other parameters by obstacle.
        looks: the properties of the columns that decide where they can step; None if torch stepped
            all parameters because of an obstacle.
        options: those of the group's options that decide about the columns.
        keys: the name in the state of each column after the first two, with None for an empty
            column; None if torch has to collect the columns.
        returned: the result of `_init_group`.
    """

    local: int
    by_torch: Mapping[str, int]
    looks: Sequence[Any] | None = None
    options: Sequence[Any] = ()
    keys: Sequence[str | None] | None = None
    returned: Any = None


def rule_of(optimizer: Optimizer) -> Rule | None:
    """Return torch's function for a step, without hooks; None for a rule that is not elementwise.

    A class with a replaced `step` also has none.
    """
    if type(optimizer) not in RULES:
        return None
    step = inspect.unwrap(type(optimizer).step)
    return step if step.__module__.startswith("torch.optim.") else None


def step(
    rule: Rule, optimizer: Any, group: Group, columns: Sequence[Column], known: Split | None
) -> tuple[Any, Split | None]:
    """Do the work of `_init_group`, and step on the local tensors of a group where possible.

    The given `columns` are empty lists. They receive the parameters if torch has to step them all.
    `known` is the split of the last step. Return the result of `_init_group`, and the split.
    """
    obstacle = obstacles.of_step(optimizer)
    if not obstacle and known and _repeat(rule, optimizer, group, known):
        return known.returned, known
    returned = type(optimizer)._init_group(optimizer, group, *columns)
    parameters = columns[0]
    if not parameters:
        return returned, None
    if obstacle := obstacle or obstacles.of_group(optimizer, group):
        return returned, Split(0, {obstacle: len(parameters)})
    listed = obstacles.is_listed(group, parameters[0])
    reasons = obstacles.of_parameters(columns, listed=listed)
    if all(reasons):
        return returned, Split(0, Counter(reasons))
    looks, options = [_read(column)[0] for column in columns if column], _options(group)
    parts: list[Sequence[int]] = [range(len(parameters))]
    if listed and any(reasons):
        if known and (known.looks, known.options) == (looks, options):
            parts = [[at for at in parts[0] if bool(reasons[at]) is of] for of in (True, False)]
        else:  # torch may refuse to move a gradient, and then must have stepped the whole list
            reasons = [reason or obstacles.TOGETHER for reason in reasons]
    for part in parts:
        chosen = [[column[at] for at in part] if column else [] for column in columns]
        local = [
            [
                tensor._local_tensor if type(tensor) is DTensor and not reasons[at] else tensor
                for at, tensor in zip(part, column, strict=False)  # a column may be empty
            ]
            for column in chosen
        ]
        _run(rule, optimizer, group, chosen, local, returned)
    by_torch = Counter(filter(None, reasons))
    keys = None if by_torch else _keys(optimizer, columns)
    for column in columns:
        column.clear()
    local_count = len(reasons) - by_torch.total()
    return returned, Split(local_count, by_torch, looks, options, keys, returned)


def _repeat(rule: Rule, optimizer: Optimizer, group: Group, last: Split) -> bool:
    """Step as in the group's last step; return False, with nothing done, if anything differs.

    Torch's `_init_group` is not called. For unchanged options and present state it only collects.
    """
    if last.keys is None or last.options != _options(group):
        return False
    parameters, grads = group["params"], list(map(_GRADIENT, group["params"]))
    if set(map(type, grads)) != _DTENSORS:
        parameters = [parameter for parameter in parameters if parameter.grad is not None]
        grads = list(map(_GRADIENT, parameters))
    used = [key for key in last.keys if key is not None]
    try:
        state = list(map(optimizer.state.__getitem__, parameters)) if used else []
        columns = [parameters, grads, *(list(map(itemgetter(key), state)) for key in used)]
    except KeyError:  # a parameter without state
        return False
    read = list(map(_read, columns))
    if [looks for looks, _ in read] != last.looks:
        return False
    local = [tensors for _, tensors in read]
    for at, key in enumerate(last.keys, 2):
        if key is None:
            columns.insert(at, [])
            local.insert(at, [])
    return _run(rule, optimizer, group, columns, local, last.returned)


def _options(group: Group) -> list[Any]:
    """Return what matters of a group's options: switches, types, and which numbers are zero."""
    return [_gist(value) for name, value in group.items() if name != "params"]


def _gist(value: Any) -> Any:
    kind = type(value)
    if kind is float or kind is int:
        return kind, value == 0
    if kind is tuple:
        return tuple(map(type, value))
    return value if kind in (bool, str) else kind


def _keys(optimizer: Optimizer, columns: Sequence[Column]) -> list[str | None] | None:
    """Return the names of the columns in the parameters' state; None if a column is not there."""
    states = [optimizer.state.get(parameter, {}) for parameter in columns[0]]
    keys: list[str | None] = []
    for column in columns[2:]:
        names = [name for name, value in states[0].items() if column and value is column[0]]
        if column and not names:
            return None
        if column and any(
            state.get(names[0]) is not value for state, value in zip(states, column, strict=True)
        ):
            return None
        keys.append(names[0] if names else None)
    return keys


def _read(column: Column) -> tuple[list[Any], Column]:
    """Return the looks of a column, which decide where it can step, and its local tensors."""
    classes = set(map(type, column))
    if classes == _DTENSORS:
        local = list(map(_LOCAL, column))
        if set(map(type, local)) == _TENSORS:
            return list(map(_SPEC, column)), local
    elif classes == _TENSORS:
        return list(map(_DIMENSIONS, column)), column
    local = [tensor._local_tensor if type(tensor) is DTensor else tensor for tensor in column]
    looks = [
        (type(tensor), getattr(tensor, "_spec", None), getattr(tensor, "ndim", None), type(part))
        for tensor, part in zip(column, local, strict=True)
    ]
    return looks, local


def _run(
    rule: Rule,
    optimizer: Optimizer,
    group: Group,
    columns: Sequence[Column],
    local: Sequence[Column],
    returned: Any,
) -> bool:
    """Call a rule for an optimizer of the same class, with one group and `local` as its columns.

    `columns` has the tensors on which torch would step. Return False, with nothing done, if one of
    their local tensors is an inference tensor.
    """
    if not columns[0]:
        return True

    def fill(_: Any, *empty: Column) -> Any:
        for column, tensors in zip(empty, local, strict=True):
            column.extend(tensors)
        return returned

    twin = object.__new__(type(optimizer))
    vars(twin).update(
        vars(optimizer),
        param_groups=[group],
        state=defaultdict(dict),  # SGD stores its buffers once more, under the local parameters
        _init_group=fill,
    )
    if group.get("fused"):  # on DTensors and on local tensors, these ops raise no version
        rule(twin)
        return True
    pairs = [
        (tensor, part)
        for number, (column, parts) in enumerate(zip(columns, local, strict=True))
        if number != 1  # these rules change no gradient
        for tensor, part in zip(column, parts, strict=True)
        if part is not tensor
    ]
    tensors, parts = [tensor for tensor, _ in pairs], [part for _, part in pairs]
    if (before := versions(parts)) is None:
        return False
    with raised_as_by_torch(tensors, parts, before, obstacles.is_listed(group, columns[0][0])):
        rule(twin)
    return True


# The versions of DTensors, by which autograd notices that a saved tensor has changed. Torch's ops
# in place on a DTensor raise its version, and leave the local tensor's alone. Torch's ops in place
# on a list of DTensors raise none. Ops on local tensors raise the local versions instead.


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
