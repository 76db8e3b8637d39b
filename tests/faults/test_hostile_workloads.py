"""Ids and parameters of workloads: malformed ones, and those that would take for ever."""

from functools import partial

import pytest
from hostile import NUMBERS, TEXTS, read_or_refused, refusal
from hypothesis import given, strategies as st

from harness.contract import count_calls
from harness.contract.registry import load_registry
from harness.model.errors import UsageError
from harness.model.ids import CellId, ProblemId, WorkloadSpec

FAMILIES = {family.name: family for family in load_registry().families}
KEYS = {
    "embedding": ("tables", "seed", "memory"),
    "dtensor": ("op", "dims", "cases", "seed", "impl", "params"),
    "dimspec": ("rank", "shape", "mesh", "calls", "conversions", "seed", "model"),
    "reshard": ("layers", "stage", "ops", "inserts", "seed"),
    "experts": ("layers", "windows", "seed", "redundant", "groups", "budget"),
}
WORKLOADS = [
    (family.name, workload.name)
    for family in FAMILIES.values()
    for workload in family.workloads()
    if not workload.name.startswith("merlin-") or workload.name == "merlin-tiny"
]


@given(st.text(max_size=30) | st.sampled_from(TEXTS) | st.text("ab[]=,@/:0 \n", max_size=20))
def test_an_id_is_read_or_refused(text):
    """An id that is read is written as the same id."""
    spec = read_or_refused(lambda: WorkloadSpec.parse(text))
    if spec is not None:
        assert WorkloadSpec.parse(str(spec)) == spec
    read_or_refused(lambda: ProblemId.parse(text))
    read_or_refused(lambda: CellId.parse(text))


def test_what_is_said_of_an_id_is_short_and_printable():
    """Long texts are cut in their middle, and control characters are escaped."""
    said = refusal(lambda: WorkloadSpec.parse(f"[{'x' * 10**7}"))
    assert said.startswith("Workload '[xxxx")
    assert r"'\x1b[31m\n'" in str(UsageError("No '\x1b[31m\n' here."))
    for parse in (ProblemId.parse, lambda text: CellId.parse(f"family/variant@{text}")):
        said = refusal(lambda parse=parse: parse(f"workload/topology:{'9' * 5000}"))
        assert "more GPUs than can be counted" in said


@pytest.mark.parametrize(("family", "workload"), WORKLOADS)
def test_a_parameter_is_possible_or_refused_after_little_work(family, workload):
    """No value makes a family work for long before it is refused."""
    specs = [
        WorkloadSpec(workload, {key: value})
        for key in (*KEYS[family], "another", *TEXTS[:3])
        for value in NUMBERS
    ]

    def read_all() -> None:
        for spec in specs:
            read_or_refused(partial(FAMILIES[family].label, spec))

    _, calls = count_calls(read_all)
    assert sum(calls.values()) < 100_000 * len(specs)


@pytest.mark.parametrize(
    ("family", "workload", "most"),
    [
        ("embedding", "synthetic[tables={}]", 10_000),
        ("dimspec", "random[conversions={}]", 100_000),
        ("dimspec", "all-pairs[shape={}x8]", 2**31),
        ("dimspec", "all-pairs[mesh={}x2]", 2),
        ("dtensor", "optimizer[params={}]", 5000),
        ("dtensor", "miss[cases={}]", 5000),
        ("reshard", "transformer[layers={}]", 256),
        ("reshard", "micro[ops={}]", 100_000),
        ("reshard", "micro[inserts={},ops=100000]", 100_000),
        ("experts", "kimi-k2[layers={}]", 58),
    ],
)
def test_a_size_of_practice_is_allowed_and_an_astronomical_one_refused(family, workload, most):
    """Sizes have limits above all problems of practice, and are plain digits."""
    spec = WorkloadSpec.parse(workload.format(most))
    assert FAMILIES[family].label(spec) == spec
    for wrong in (10**12, "٣", "1_000", "+5"):
        label = partial(FAMILIES[family].label, WorkloadSpec.parse(workload.format(wrong)))
        assert "must be " in refusal(label)
