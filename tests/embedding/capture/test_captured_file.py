"""Damaged captured files are read, or refused in one sentence."""

import copy
import json
from pathlib import Path
from random import Random

import pytest
from captured_models import built, captured, random_script
from hostile import change, changes, read_or_refused
from hypothesis import HealthCheck, given, settings

from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from planners.embedding import FAMILY


def document() -> dict:
    """Return the captured document of a random script with a few tables."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "problem.json")
        captured(random_script(Random(0), most_tables=3), path)
        return json.loads(path.read_text())


DOCUMENT = document()


def ends_well(path: Path) -> None:
    """Read a file as commands do; it must contain a problem or be refused in one sentence."""
    workload = WorkloadSpec(str(path))
    for ask in (FAMILY.label, FAMILY.brings, lambda _: built(path)):
        read_or_refused(lambda ask=ask: ask(workload), path.name)


def written(path: Path, held: object) -> Path:
    path.write_text(json.dumps(held))
    return path


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(wanted=changes({key: held for key, held in DOCUMENT.items() if key != "shardbench"}))
def test_a_changed_file_is_read_or_refused(path, wanted):
    held = copy.deepcopy(DOCUMENT)
    change(held, wanted)
    ends_well(written(path, held))


@pytest.mark.parametrize(
    ("way", "value", "said"),
    [
        (("topology", "world_size"), 2**40, "`int` <= 131072 - at `$.topology.world_size`"),
        (("topology", "local_world_size"), 2**17, "local_world_size and pod_size must be at most"),
        (("topology", "custom"), {"hbm_cap": []}, "custom must have"),
        (("topology", "devices"), [[1, 1, 1, 1]], "devices must be there for each of"),
        (("modules", 0, "path"), "a..b", "cannot be made"),
        (("modules", 0, "tables", 0, "name"), "a.b", "at `$.modules[0].tables[0].name`"),
        (("modules", 0, "tables", 0, "pooling"), "NONE", "pooling must be SUM or MEAN"),
        (("sharders",), [], "a sharder for each kind"),
        (("sharders", 0, "bytes_sent"), {"a": [1, 2]}, "at `key` in `$.sharders[0].bytes_sent`"),
        (("planner", "proposers", 0, "kind"), "os.system", "must be one of GreedyProposer"),
        (("planner", "kind"), "Planner", "a Planner must have mode"),
        (("options", 0, "table"), 99, "tables that are there"),
        (("options", 0, "shards"), [[1, 1, 1, 10**9]], "estimates that are there"),
        (("batch_size",), 0, "Expected `int` >= 1 - at `$.batch_size`"),
        (("found",), {}, "must have a fingerprint and proposals, or an error"),
    ],
)
def test_what_cannot_be_so_is_named(path, way, value, said):
    held = copy.deepcopy(DOCUMENT)
    *outer, last = way
    holder = held
    for key in outer:
        holder = holder[key]
    holder[last] = value
    path = written(path, held)
    with pytest.raises(UsageError) as error:
        built(path)
    assert said in str(error.value)


def test_deep_nesting_and_other_families_are_refused(path):
    path.write_text('{"shardbench": ' + "[" * 50_000 + "]" * 50_000 + "}")
    ends_well(path)
    ends_well(written(path, {**DOCUMENT, "shardbench": {"version": 1, "family": "dtensor"}}))
