"""A changed plan file contains a valid plan or is refused."""

import copy
import json
from contextlib import suppress

import pytest
import torch
from golden_plan import GOLDEN, SAID, as_said, decisions
from hypothesis import example, given, settings, strategies as st
from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets

from harness.contract import UsageError
from planners.embedding.decision import Plan, validate
from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints


def places(value, here=()):
    """Return the path of keys to every value of a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, held in pairs:
        yield (*here, key)
        if isinstance(held, dict | list):
            yield from places(held, (*here, key))


def value_at(document, place):
    for key in place:
        document = document[key]
    return document


PLACES = list(places(SAID))

BYTES = GOLDEN.read_bytes()


def read_or_refused(golden_problem, usable, path):
    """Load a file; it must be refused in a sentence or contain a valid plan."""
    try:
        loader = JsonPlanLoader(path, golden_problem.module, topology=usable)
    except UsageError as error:
        said = str(error)
        assert "plan.json" in said
        assert "__init__" not in said
        assert said.isprintable()
        return
    options = list(loader.load().values())
    validate(golden_problem, Plan(tuple(options)))
    assert decisions(options) == as_said(json.loads(path.read_bytes()))
    for table in json.loads(path.read_bytes())["tables"]:
        within = plan_constraints(path)[table["name"]]
        cut = calculate_shard_sizes_and_offsets(
            torch.empty(table["rows"], table["dim"], device="meta"),
            4,
            4,
            table["sharding_type"],
            within.min_partition,
        )
        assert [shard["size"] for shard in table["shards"]] == cut[0]
        assert [shard["offset"] for shard in table["shards"]] == cut[1]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzzed") / "plan.json"


@settings(max_examples=400, deadline=None)
@given(
    position=st.integers(0, len(BYTES) - 1),
    removed=st.integers(0, 2),
    put=st.binary(max_size=2) | st.sampled_from([b"0", b"1", b"9", b"-", b".", b"e", b'"', b","]),
)
@example(position=BYTES.index(b"0.0004"), removed=0, put=b"\x80")
@example(position=11949, removed=0, put=b"e")  # a number out of range
def test_a_file_with_a_changed_byte_is_a_plan_or_refused(
    golden_problem, usable, fuzzed, position, removed, put
):
    fuzzed.write_bytes(BYTES[:position] + put + BYTES[position + removed :])
    read_or_refused(golden_problem, usable, fuzzed)


@settings(max_examples=400, deadline=None)
@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from(PLACES),
            st.integers(-2, 6)
            | st.sampled_from([True, None, 0.5, 1e30, 2**50, 2**63, 10**400, "", "table_1", [], {}])
            | st.sampled_from(PLACES).map(lambda place: value_at(SAID, place)),
        ),
        min_size=1,
        max_size=3,
    )
)
@example(changes=[(("local_world_size",), 1)])
def test_a_file_with_changed_fields_is_a_plan_or_refused(golden_problem, usable, fuzzed, changes):
    said = copy.deepcopy(SAID)
    for (*outer, last), value in changes:
        with suppress(LookupError, TypeError):
            value_at(said, outer)[last] = copy.deepcopy(value)
    fuzzed.write_text(json.dumps(said))
    read_or_refused(golden_problem, usable, fuzzed)
