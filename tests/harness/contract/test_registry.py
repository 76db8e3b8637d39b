"""Families and variants are registered, found by name or entry point, or refused."""

import importlib.metadata
import math
import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest
import toy
import toy_registries

from harness.contract import (
    Claim,
    Family,
    Pair,
    Quality,
    RankTable,
    Statement,
    Study,
    supported_releases,
)
from harness.contract.abilities import load
from harness.contract.registry import Registry
from harness.contract.supported_releases import SupportedReleases
from harness.measuring.jobs import check
from harness.model.errors import RegistryError, UsageError
from harness.model.ids import WorkloadSpec
from harness.model.quality import Bound, find_bound
from harness.topologies.lookup import find_topology

PROBLEM = "toy[size=4]/dgx_a100_80gb:2"
GOAL = Statement("goal", "quick", PROBLEM, "reference", "same", at_least=2)


def family(name: str = "toy", **changes) -> Family:
    return replace(toy.TOY, name=name, variants={}, **changes)


def add(family: Family, name: str, **options) -> None:
    family.variant(name, **options)(lambda problem: None)


@pytest.mark.parametrize(
    ("variants", "sentence"),
    [
        ({"only": {}}, "needs one reference variant, not 0"),
        ({"a": {"reference": True}, "b": {"reference": True}}, "one reference variant, not 2"),
        (
            {"a": {"reference": True}, "b": {"same_as": "third"}},
            "the same as 'third', which is no variant",
        ),
        (
            {"a": {"reference": True}, "b": {"same_as": "c"}, "c": {"same_as": "b"}},
            "'b' that must decide the same as itself",
        ),
        ({"at@sign": {"reference": True}}, "'at@sign', which needs a name without '@'"),
    ],
)
def test_variants_that_contradict_each_other_are_refused(variants, sentence):
    """One sentence names the family and the variant."""
    refused = family()
    for name, options in variants.items():
        add(refused, name, **options)
    with pytest.raises(RegistryError, match=f"^Family 'toy' .*{sentence}"):
        Registry([refused])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": "at@sign"}, "needs a name without"),
        ({"qualities": ()}, "'toy' needs at least one quality"),
        ({"studies": (Study("toy", (), "lost"),)}, "has a study that is malformed: Problem"),
        (
            {"studies": (Study(PROBLEM, (), "a"), Study(PROBLEM, (), "b", against="same"))},
            "can be studied against one variant only",
        ),
        ({"statements": (replace(GOAL, after="sane"),)}, "has no 'sane', which 'quick' names"),
        ({"statements": (replace(GOAL, problem="toy"),)}, "has statement 'quick' that is malforme"),
        ({"statements": (replace(GOAL, measure="speed"),)}, "has no 'speed', which 'quick' names"),
        ({"statements": (replace(GOAL, at_least=None),)}, "without at_least and at_most"),
    ],
)
def test_a_family_that_contradicts_itself_is_refused(changes, sentence):
    """Ids need clear names, and studies and statements name what the family has."""
    with pytest.raises(RegistryError, match=sentence):
        Registry([replace(toy.TOY, **changes)])


def test_a_claim_has_the_published_figures_of_its_variant():
    """A statement has the family's name, and figures and source of the variant after the change."""
    commits = Statement(
        "claim", "Toy #1", PROBLEM, "lib/a", "lib/b", quick=Pair(PROBLEM, "reference", "same")
    )
    (claim,) = replace(toy.TOY, statements=(commits,)).declared_statements()
    assert claim.published == Claim(20, 10, "min")
    assert str(claim.cell_id(PROBLEM, claim.after)) == f"lib/b@{PROBLEM}"
    assert str(claim.cell_id(PROBLEM, "same")) == f"toy/same@{PROBLEM}"


def test_families_are_sorted():
    """Families are listed by name, whatever their order of registration."""
    registry = Registry([replace(toy.TOY, name="zebra"), toy.TOY])
    assert [found.name for found in registry.families] == ["toy", "zebra"]


class TestEntryPoints:
    @pytest.mark.parametrize(
        ("target", "reason"),
        [
            ("broken_module:FAMILY", "libsomething.so.12: cannot open shared object file"),
            ("toy:build", "build|attribute|Family"),
            ("toy:LOST", "Family 'lost' needs one reference variant"),
            ("toy:COPY", "Two families are named 'toy'"),
        ],
    )
    def test_a_broken_family_leaves_the_others_working(self, monkeypatch, target, reason):
        """The reason is told when the family is asked for."""
        monkeypatch.setattr(toy, "LOST", family("lost"), raising=False)
        monkeypatch.setattr(toy, "COPY", replace(toy.TOY), raising=False)
        name = "lost" if target.endswith("LOST") else "broken"
        offers = {"toy": "toy:TOY", name: target}
        group = "shardbench.families"
        points = [importlib.metadata.EntryPoint(*offer, group) for offer in offers.items()]
        registry = Registry(points=points)
        assert registry.families == (toy.TOY,)
        with pytest.raises(UsageError, match=f"^Family '{name}' could not be loaded: .*{reason}"):
            registry.find(name)

    def test_a_named_family_loads_no_other_but_those_of_other_packages(self):
        """Another package may add variants, with which the family is checked when it is found."""
        growing, failed = family(), []
        add(growing, "first", reference=True)

        def grown() -> Family:
            add(growing, "second", same_as="nowhere")
            return growing

        points = [
            SimpleNamespace(name=name, dist=SimpleNamespace(name=package), load=load)
            for name, package, load in (
                ("other", "shardbench", lambda: pytest.fail("was loaded")),
                ("toy", "shardbench", lambda: growing),
                ("own-toy", "own-planners", grown),
            )
        ]
        registry = Registry(points=points, failed=lambda name, reason: failed.append(name))
        with pytest.raises(UsageError, match=r"Family 'toy' could not be loaded: .*'nowhere'"):
            registry.find("toy")
        assert failed == ["toy"]


def test_what_is_missing_is_named():
    """A family's requirements are those of each variant; a dotted name may be missing."""
    demanding = family(requires=("json.decoder", "json.no_such_part"))
    add(demanding, "first", reference=True, requires=("no_such_module.inner",))
    missing = ("json.no_such_part", "no_such_module.inner")
    assert demanding.variants["first"].missing() == missing


def test_an_implementation_is_imported_when_it_is_needed(monkeypatch, tmp_path):
    """Its module is named to be loaded before child processes are forked."""
    (tmp_path / "late_work.py").write_text("def build(workload, topology):\n    return 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    lazy = family(implementation="late_work", preload=("scipy.special",))
    assert "late_work" not in sys.modules
    assert lazy.modules == ("late_work", "scipy.special")
    assert lazy.work.build(None, None) == 7
    assert load("late_work:build") is lazy.work.build
    monkeypatch.delitem(sys.modules, "late_work")


COST = Quality("cost", "ms", "lower", "what it costs")
LEAST = Quality("least", "ms", "higher", "what it costs at least", bounds="cost")
SPEED = Quality("speed", "", "higher", "how fast it is")


def test_only_a_bound_on_the_first_quality_counts():
    """The gap of a decision is that of the family's first quality."""
    assert find_bound((COST,)) is None
    assert find_bound((SPEED, COST, LEAST)) is None
    assert find_bound((COST, SPEED, LEAST)) == Bound("cost", "least", "lower")


@pytest.mark.parametrize(
    ("better", "value", "bound", "gap"),
    [
        ("lower", 11.0, 10.0, 0.1),
        ("lower", 10.0, 10.0, 0.0),
        ("higher", 8.0, 10.0, 0.25),
        ("lower", 11.0, 0.0, math.nan),
        ("lower", 11.0, None, math.nan),
    ],
)
def test_the_gap_is_the_distance_to_the_bound(better, value, bound, gap):
    """The gap is a share of the bound, and NaN if either is unknown."""
    found = Bound("value", "bound", better).gap({"value": value, "bound": bound})
    assert found == pytest.approx(gap, nan_ok=True)


def test_a_decision_better_than_its_bound_fails_its_check(clock):
    """The quality or the bound is wrong; rounding is no contradiction."""
    (family,) = toy_registries.bounded_registry().families
    problem = toy.build(WorkloadSpec("toy"), find_topology("dgx_a100_80gb", 2))
    assert check(family, family.find("same"), problem, clock).quality["least"] == 3.0
    wrong = toy.with_work(family, quality=lambda problem, decision: {"fullest": 2.0, "least": 3.0})
    with pytest.raises(RegistryError, match="is 2, better than its proven bound 'least' of 3"):
        check(wrong, family.find("same"), problem, clock)
    bound = Bound("cost", "least", "lower")
    assert not bound.is_passed({"cost": 10.0, "least": 10.0 * (1 + 1e-12)})


@pytest.mark.parametrize(
    ("rows", "capacities", "bar"),
    [
        (((1.0,),), (None, 80.0), "ms"),
        (((1.0, 2.0),), (None,), "ms"),
        (((1.0, 2.0),), (None, 80.0), "GiB of HBM"),
    ],
)
def test_a_table_of_ranks_that_contradicts_itself_is_refused(rows, capacities, bar):
    """Rows and capacities have a value per column, and the bar is a column."""
    with pytest.raises(ValueError, match="a rank table must have a figure in each row"):
        RankTable(("ms", "GiB"), rows, capacities, bar)


TESTED = SupportedReleases("torch", ("2.13.0", "2.15.0"))


@pytest.mark.parametrize(
    ("release", "is_tested"),
    [
        *((release, True) for release in ("2.13.0", "2.13.0+cpu", "2.15.0+cu130")),
        *((release, False) for release in ("2.14.0", "2.13.1", "2.13.0a0+git1", "2.13", "own", "")),
    ],
)
def test_a_build_of_a_tested_release_is_that_release_and_others_warn_once(
    monkeypatch, recwarn, release, is_tested
):
    """The warning names the tested releases."""
    warnings.simplefilter("always")
    monkeypatch.setattr(supported_releases, "_said", set())
    for _ in range(3):
        assert TESTED.allow("accelerate()", release, any_release=False) == is_tested
    said = [f"accelerate() was tested with torch 2.13.0, 2.15.0, not with {release}: torch's own"]
    assert [str(warned.message)[: len(said[0])] for warned in recwarn] == said * (not is_tested)
