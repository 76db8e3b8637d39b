"""Parameters of workloads become structs; wrong ones are refused in one sentence."""

from typing import Annotated, Literal

import pytest
from msgspec import Meta

from harness.contract import workloads as parameters
from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec


class Drawn(parameters.Parameters, frozen=True):
    tables: Annotated[int, Meta(ge=1, le=1000)] = 100
    calls: parameters.Count | None = None
    seed: parameters.Seed = 0
    share: Annotated[float, Meta(gt=0, le=2)] | None = None
    skew: Annotated[float, Meta(ge=0, lt=3)] = 0.0
    rule: Literal["adamw", "sgd"] = "adamw"
    shape: (
        Annotated[
            tuple[Annotated[int, Meta(ge=1)], ...], Meta(max_length=2, extra={"separator": "x"})
        ]
        | None
    ) = None
    ops: Annotated[tuple[Literal["mm", "t"], ...], Meta(extra={"separator": "+"})] = ("mm", "t")

    def __post_init__(self) -> None:
        if self.calls and self.shape:
            raise ValueError("'calls' and 'shape' exclude each other")


KINDS = {"drawn": Drawn, "plain": parameters.Parameters, parameters.CAPTURED_FILE: Drawn}


def read(text: str) -> parameters.Parameters:
    return parameters.workload_parameters(WorkloadSpec.parse(text), "toys", KINDS)


def test_each_type_is_read_from_its_text():
    """A captured file takes its own parameters."""
    seed = 123456789012345678901234567890
    values = {"tables": 7, "seed": seed, "share": 0.5, "rule": "sgd", "shape": (8, 4)}
    text = f"drawn[tables=7,seed={seed},share=0.5,rule=sgd,shape=8x4,ops=t]"
    assert read(text) == Drawn(**values, ops=("t",))
    assert read("drawn[calls=3,ops=mm+t]") == Drawn(calls=3)
    assert read("mine.json.gz[tables=3]") == read("mine.json[tables=3]") == Drawn(tables=3)


VALUES = {
    ("tables", "a whole number from 1 to 1,000"): [
        *("0", "-1", "1.5", "many", "", "+5", "1_0", "\N{ARABIC-INDIC DIGIT THREE}", "9" * 5000),
        "1001",
    ],
    ("calls", "a whole number of at least 1"): ["0"],
    ("seed", "a whole number of at least 0"): ["-1"],
    ("share", "a number above 0, at most 2"): ["0", "3", "nan", "inf", "a"],
    ("skew", "a number of at least 0, below 3"): ["-1", "3", "nan", "a"],
    ("rule", "one of adamw, sgd"): ["adam"],
    ("shape", "joined by x, at most 2"): ["1x2x3", "1x", "x", "0", "1*2"],
    ("ops", "one of mm, t, or several joined by +"): ["mm+", "relu"],
}
WORKLOADS = {
    "drawn[calls=1,shape=2]": "'calls' and 'shape' exclude each other",
    "drawn[table=3]": "did you mean tables?",
    "plain[tables=3]": "Unknown parameter of workload 'plain', 'tables'; known are: none.",
    "drown": "Unknown workload of family 'toys', 'drown'; did you mean drawn?",
    "else": "known are: FILE.json.gz, drawn, plain.",
    "mine.json.gz[op=t]": "did you mean ops?",
}


@pytest.mark.parametrize(
    ("name", "value", "limits"),
    [(name, value, limits) for (name, limits), values in VALUES.items() for value in values],
)
def test_a_value_that_is_not_possible_is_named_with_its_limits(name, value, limits):
    """The sentence quotes the parameter and the value."""
    with pytest.raises(UsageError) as refused:
        parameters.read_parameters(WorkloadSpec("drawn", {name: value}), Drawn)
    said = str(refused.value)
    assert said.startswith(f"Parameter '{name}' of workload 'drawn[{name}=")
    assert limits in said


@pytest.mark.parametrize(("workload", "said"), WORKLOADS.items())
def test_names_that_are_unknown_or_exclude_each_other_are_said(workload, said):
    """Similar names are suggested."""
    with pytest.raises(UsageError) as refused:
        read(workload)
    assert said in str(refused.value)
