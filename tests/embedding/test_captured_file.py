"""Captured files that lie: read, or refused in one sentence, and never for long."""

import copy
import json
import sys
from pathlib import Path
from random import Random

import pytest
from captured_models import built, captured, random_script
from hypothesis import HealthCheck, given, settings

from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from planners.embedding import FAMILY
from planners.embedding.capture.file import read_problem

sys.path.append(str(Path(__file__).parents[1] / "faults"))
from hostile import change, changes, read_or_refused


def document() -> dict:
    """Return a captured file with a little of everything."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "problem.json")
        captured(random_script(Random(0), most_tables=3), path)
        return json.loads(path.read_text())


DOCUMENT = document()


def ends_well(path: Path) -> None:
    """Read a file as commands do: it is a problem, or is refused in one sentence."""
    workload = WorkloadSpec(str(path))
    for ask in (FAMILY.label, FAMILY.brings, lambda _: built(path)):
        read_or_refused(lambda ask=ask: ask(workload), path.name)


def written(path: Path, held: object) -> Path:
    path.write_text(json.dumps(held))
    return path


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(wanted=changes({key: held for key, held in DOCUMENT.items() if key != "shardbench"}))
def test_a_changed_file_is_read_or_refused(tmp_path, wanted):
    held = copy.deepcopy(DOCUMENT)
    change(held, wanted)
    ends_well(written(tmp_path / "problem.json", held))


@pytest.mark.parametrize(
    ("way", "value", "said"),
    [
        (("topology", "world_size"), 2**40, "a whole number from 1 to 131072"),
        (("topology", "world_size"), True, "world_size of topology of the file must be a whole"),
        (("topology", "devices"), [[1, 1, 1, 1]], "devices must be there for each of"),
        (("topology", "devices"), [[2**61, 1, 1, 1]], "devices must be there for each of"),
        (("topology", "hbm_mem_bw"), float("nan"), "a number from"),
        (("topology", "hbm_mem_bw"), 10**400, "a number from"),
        (("topology", "compute_device"), "tpu", "one of cpu, cuda, mtia"),
        (("batch_size",), 0, "a whole number from 1"),
        (("modules",), [], "there must be modules"),
        (("modules", 0, "path"), "a..b", "cannot be made"),
        (("modules", 0, "path"), "training", "cannot be made"),
        (("modules", 0, "tables", 0, "rows"), 10**15, "a whole number from 1 to 1000000000000"),
        (("modules", 0, "tables", 0, "name"), "a.b", "without '.'"),
        (("sharders",), [], "a sharder for each kind"),
        (("planner", "proposers", 0, "kind"), "os.system", "must be one of GreedyProposer"),
        (("options", 0, "table"), 99, "a whole number from 0"),
        (("options", 0, "shards"), [[1, 1, 1, 10**9]], "estimates that are there"),
        (("estimates",), [[1, 2]], "a list of rows of 9 numbers"),
        (("constraints",), [], "constraints of the file must be an object"),
        (("found",), {}, "fingerprint of found of the file is missing"),
    ],
)
def test_what_cannot_be_so_is_named(tmp_path, way, value, said):
    held = copy.deepcopy(DOCUMENT)
    *outer, last = way
    holder = held
    for key in outer:
        holder = holder[key]
    holder[last] = value
    path = written(tmp_path / "problem.json", held)
    with pytest.raises(UsageError) as error:
        built(path)
    assert said in str(error.value)


@pytest.mark.parametrize("key", [key for key in DOCUMENT if key != "shardbench"])
def test_every_part_must_be_there(tmp_path, key):
    held = copy.deepcopy(DOCUMENT)
    del held[key]
    with pytest.raises(UsageError, match=f"{key} of the file is missing"):
        read_problem(written(tmp_path / "problem.json", held))


def test_deep_nesting_and_other_families_are_refused(tmp_path):
    path = tmp_path / "problem.json"
    path.write_text('{"shardbench": ' + "[" * 50_000 + "]" * 50_000 + "}")
    ends_well(path)
    ends_well(written(path, {**DOCUMENT, "shardbench": {"version": 1, "family": "dtensor"}}))
