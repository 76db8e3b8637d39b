"""Keys: digests of all that a stored value depends on; and what a suite still has to measure."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from harness.model.cell import Environment
from harness.store.lines import Entry, digest_of

T = TypeVar("T")
V = TypeVar("V")

ELSEWHERE = "times of another machine (--machine NAME names equal ones)"
"""Why a stored time does not count here."""

_DIFFERENCES = {
    "machine": ELSEWHERE,
    "code": "other code of shardbench or of its families",
    "family": "other code of its family",
    "versions": "other versions of Python or packages",
    "settings": "other settings",
}


class Key(Struct, frozen=True):
    """What a stored value depends on, besides its id, which names the problem.

    In a wanted key, an empty part means that it does not matter.

    Attributes:
        code: the digest of the code of shardbench and of all families, or of a library's driver.
        family: the digest of the family's code.
        versions: the digest of the versions of Python and of packages.
        machine: the digest that identifies the machine.
        settings: the digest of all that the user chose, e.g. the variant to compare with.
    """

    code: str = ""
    family: str = ""
    versions: str = ""
    machine: str = ""
    settings: str = ""

    def __str__(self) -> str:
        return ".".join(asdict(self).values())

    @classmethod
    def parse(cls, text: str) -> "Key":
        """Parse the text of a key; of any other text, all parts but the first are empty."""
        return cls(*text.split(".")[: len(cls.__struct_fields__)])


def key_of(where: Environment, *chosen: Any) -> Key:
    """Return the key of measurements in an environment with these settings."""
    return Key(
        code=where.code or "",
        family=where.family_code or "",
        versions=digest_of([where.python, where.packages]),
        machine=where.machine or "",
        settings=digest_of([_changed(value) for value in chosen]) if chosen else "",
    )


def _changed(value: Any) -> Any:
    """Return the fields of a struct that differ from their defaults; new fields change no key."""
    if not isinstance(value, Struct):
        return value
    fields = {known.name: known.default for known in msgspec.structs.fields(value)}
    values = {name: getattr(value, name) for name in fields}
    return {name: _changed(item) for name, item in values.items() if item != fields[name]}


def difference(stored: str, wanted: Key, earlier: Collection[str] = ()) -> str:
    """Return why a stored value does not count, such as "other settings"; empty if it does.

    `earlier` has the code of earlier versions whose values are still valid.
    """
    there, here = asdict(Key.parse(stored)), asdict(wanted)
    for part, why in _DIFFERENCES.items():
        is_valid = there[part] == here[part] or (part == "code" and there[part] in earlier)
        if here[part] and not is_valid:
            return why
    return ""


@dataclass(frozen=True, slots=True)
class Task(Generic[T, V]):
    """A part of a suite, such as a request, with the ids of its entries and their key.

    `values` are the stored ones that count for it. They are of one or more machines if the key has
    no machine; the task is complete if one machine has measured all. `earlier` has the code of
    earlier versions whose values are still valid.
    """

    what: T
    ids: frozenset[str]
    key: Key
    earlier: Sequence[str] = ()
    values: tuple[V, ...] = ()
    is_complete: bool = False


def missing(suite: Iterable[Task[T, V]], stored: Iterable[Entry[V]]) -> list[Task[T, V]]:
    """Return the tasks of a suite with their stored values."""
    by_id: dict[str, list[Entry[V]]] = {}
    for entry in stored:
        by_id.setdefault(entry.id, []).append(entry)
    tasks = []
    for task in suite:
        machines: dict[str, dict[str, V]] = {}
        for name in sorted(task.ids):
            for entry in by_id.get(name, ()):
                if not difference(entry.key, task.key, task.earlier):
                    machines.setdefault(Key.parse(entry.key).machine, {})[name] = entry.value
        values = tuple(value for of_machine in machines.values() for value in of_machine.values())
        is_complete = any(of_machine.keys() == task.ids for of_machine in machines.values())
        tasks.append(dataclasses.replace(task, values=values, is_complete=is_complete))
    return tasks


def unused(
    suite: Sequence[Task[Any, V]], stored: Iterable[Entry[V]]
) -> tuple[Counter[str], list[Entry[V]]]:
    """Return how many stored entries do not count for a suite, by the reason, and those that do.

    An entry of no task counts if its code, versions and machine are those of a task.
    """
    keys = {name: [task.key] for task in suite for name in task.ids}
    others = list({replace(task.key, family="", settings="") for task in suite})
    reasons, used = Counter[str](), []
    for entry in stored:
        whys = [difference(entry.key, key) for key in keys.get(entry.id, others)]
        if all(whys) and whys:
            reasons[whys[0]] += 1
        else:
            used.append(entry)
    return reasons, used
