import importlib.metadata
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import toy

from harness.contract import Family, Quality
from harness.contract.family import load
from harness.contract.registry import Registry, load_registry
from harness.contract.variants import Variant
from harness.model.errors import RegistryError, UsageError, unknown


def family(name: str = "toy", **changes) -> Family:
    return replace(toy.TOY, name=name, variants={}, **changes)


def add(family: Family, name: str, **options) -> None:
    family.variant(name, **options)(lambda problem: None)


def entry_point(name: str, value: str) -> importlib.metadata.EntryPoint:
    return importlib.metadata.EntryPoint(name, value, "shardbench.families")


def says(sentence: str) -> str:
    return f"^{re.escape(sentence)}$"


def test_a_family_without_a_reference_is_refused():
    lost = family()
    add(lost, "only")
    with pytest.raises(RegistryError, match=says("Family 'toy' has no reference variant.")):
        Registry([lost])


def test_a_second_reference_is_refused():
    divided = family()
    add(divided, "first", reference=True)
    sentence = "Family 'toy' has two references, 'first' and 'second'."
    with pytest.raises(RegistryError, match=says(sentence)):
        add(divided, "second", reference=True)
    assert list(divided.variants) == ["first"]


def test_a_second_variant_of_the_same_name_is_refused():
    doubled = family()
    add(doubled, "first", reference=True)
    kept = doubled.variants["first"]
    with pytest.raises(RegistryError, match=says("Family 'toy' has two variants named 'first'.")):
        add(doubled, "first")
    assert doubled.variants["first"] is kept


def test_a_second_family_of_the_same_name_is_refused():
    registry = toy.toy_registry()
    with pytest.raises(RegistryError, match=says("Two families are named 'toy'.")):
        registry.add(replace(toy.TOY))
    assert registry.families[0] is toy.TOY
    assert len(registry.families) == 1


def test_a_family_that_was_added_to_is_checked_again():
    growing = family()
    add(growing, "first", reference=True)
    registry = Registry([growing])
    add(growing, "second", same_as="first")
    registry.add(growing)
    assert registry.families == (growing,)

    add(growing, "third", same_as="nowhere")
    with pytest.raises(RegistryError, match="'nowhere', which is not registered"):
        registry.add(growing)
    assert registry.families == ()
    with pytest.raises(UsageError, match=r"Family 'toy' could not be loaded: .*'nowhere'"):
        registry.find("toy")


def test_same_as_that_leads_nowhere_is_refused():
    misled = family()
    add(misled, "first", reference=True)
    add(misled, "second", same_as="third")
    sentence = "Variant 'toy/second' must decide the same as 'third', which is not registered."
    with pytest.raises(RegistryError, match=says(sentence)):
        Registry([misled])


@pytest.mark.parametrize(
    "same_as",
    [
        {"first": None, "second": "second"},
        {"first": None, "second": "third", "third": "second"},
        {"first": "second", "second": "third", "third": "first"},
        {"first": None, "second": "third", "third": "fourth", "fourth": "third"},
    ],
    ids=["itself", "pair", "with the reference", "behind a tail"],
)
def test_same_as_in_a_circle_is_refused(same_as: dict[str, str | None]):
    circular = family()
    for name, target in same_as.items():
        add(circular, name, reference=name == "first", same_as=target)
    with pytest.raises(RegistryError, match=r"^Variant 'toy/\w+' must decide the same as itself.$"):
        Registry([circular])


def test_a_chain_of_same_as_is_accepted():
    chain = family()
    add(chain, "third", same_as="second")
    add(chain, "second", same_as="first")
    add(chain, "first", reference=True)
    assert Registry([chain]).find("toy").reference.name == "first"
    models = {name: list(chain.models_of(variant)) for name, variant in chain.variants.items()}
    first, second = chain.variants["first"], chain.variants["second"]
    assert models == {"first": [], "second": [first], "third": [second, first]}


@pytest.mark.parametrize(
    ("family_name", "variant_name"),
    [("toy", "at@sign"), ("toy", ""), ("at@sign", "first"), ("in/out", "first"), ("", "first")],
)
def test_names_that_would_make_an_ambiguous_cell_id_are_refused(
    family_name: str, variant_name: str
):
    ambiguous = family(family_name)
    with pytest.raises(RegistryError, match="name"):  # noqa: PT012 - either step may refuse it
        add(ambiguous, variant_name, reference=True)
        Registry([ambiguous])


def test_quality_needs_a_direction():
    lost = replace(toy.TOY, qualities=(Quality("cost", "ms", "smaller", "what it costs"),))
    with pytest.raises(RegistryError, match=says("Quality 'cost' must be better lower or higher.")):
        Registry([lost])


def test_the_summary_is_the_first_line_of_the_docstring():
    assert toy.TOY.variants["endless"].summary == (
        "Sleep for ever, at a hundredth of the work each second."
    )
    assert toy.TOY.variants["own"].summary == ""


class TestFinding:
    def test_families_are_sorted_by_name(self):
        registry = Registry([replace(toy.TOY, name="zebra"), toy.TOY])
        assert [found.name for found in registry.families] == ["toy", "zebra"]

    def test_close_names_are_suggested(self):
        registry = toy.toy_registry()
        sentence = "Unknown family 'toys'; did you mean toy?"
        with pytest.raises(UsageError, match=says(sentence)):
            registry.find("toys")
        sentence = "Unknown variant of family 'toy', 'same-as-diferent'; did you mean "
        with pytest.raises(UsageError, match=f"^{sentence}same-as-different"):
            registry.find("toy").find("same-as-diferent")

    def test_a_name_like_no_other_gets_all_that_are_known(self):
        error = unknown("thing", "zzz", ["b", "a"])
        assert str(error) == "Unknown thing 'zzz'; known are: a, b."
        assert str(unknown("thing", "zzz", [])) == "Unknown thing 'zzz'; known are: none."


class TestEntryPoints:
    @pytest.mark.parametrize(
        ("target", "reason"),
        [
            ("a_module_that_does_not_exist:FAMILY", "No module named"),
            ("toy:NO_SUCH_FAMILY", "NO_SUCH_FAMILY"),
            ("broken_module:FAMILY", "libsomething.so.12: cannot open shared object file"),
            ("toy:build", "build|attribute|Family"),
        ],
    )
    def test_a_broken_family_leaves_the_others_working(self, target: str, reason: str):
        registry = load_registry([entry_point("broken", target), entry_point("toy", "toy:TOY")])
        assert registry.families == (toy.TOY,)
        with pytest.raises(UsageError, match=f"^Family 'broken' could not be loaded: .*{reason}"):
            registry.find("broken")

    def test_a_refused_family_leaves_the_others_working(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(toy, "LOST", family("lost"), raising=False)
        registry = load_registry([entry_point("lost", "toy:LOST"), entry_point("toy", "toy:TOY")])
        assert registry.families == (toy.TOY,)
        with pytest.raises(UsageError, match=r"Family 'lost' has no reference variant\."):
            registry.find("lost")

    def test_an_error_without_words_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        (tmp_path / "wordless_module.py").write_text("assert False\n")
        monkeypatch.syspath_prepend(tmp_path)
        registry = load_registry([entry_point("broken", "wordless_module:FAMILY")])
        with pytest.raises(UsageError, match="AssertionError"):
            registry.find("broken")

    def test_a_second_family_of_a_name_leaves_the_first_one_working(
        self, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(toy, "COPY", replace(toy.TOY), raising=False)
        registry = load_registry([entry_point("toy", "toy:TOY"), entry_point("toy", "toy:COPY")])
        assert registry.failures == {"toy": "Two families are named 'toy'."}
        assert registry.find("toy") is toy.TOY

    def test_the_built_in_families_come_through_the_same_door(self):
        names = {
            found.name for found in importlib.metadata.entry_points(group="shardbench.families")
        }
        registry = load_registry()
        assert {found.name for found in registry.families} == names
        assert registry.failures == {}


class TestRequirements:
    def test_what_is_missing_is_named(self):
        assert toy.TOY.variants["missing"].missing() == (toy.NOT_THERE,)
        assert toy.TOY.variants["same"].missing() == ()

    @pytest.mark.parametrize(
        "name", ["a_module_that_does_not_exist.inner", "json.no_such_part", "toy.inner"]
    )
    def test_a_dotted_name_may_be_missing(self, name: str):
        variant = Variant("v", lambda problem: None, "", "", requires=("json.decoder", name))
        assert variant.missing() == (name,)

    def test_looking_does_not_import(self):
        variant = Variant("v", lambda problem: None, "", "", requires=("noisy_module",))
        sys.modules.pop("noisy_module", None)
        assert variant.missing() == ()
        assert "noisy_module" not in sys.modules

    def test_a_family_s_requirements_are_those_of_each_variant(self):
        demanding = family(requires=("json", toy.NOT_THERE))
        add(demanding, "first", reference=True, requires=("another_missing_module",))
        assert demanding.variants["first"].missing() == (toy.NOT_THERE, "another_missing_module")


class TestPreparing:
    def test_a_decider_is_called_when_it_is_run(self):
        decided, calls = family(), []
        decided.decider("first", reference=True)(calls.append)
        prepared = decided.variants["first"].prepared("problem")
        assert calls == []
        prepared.run()
        prepared.run()
        assert calls == ["problem", "problem"]

    def test_a_variant_that_prepares_nothing_is_refused(self):
        sentence = (
            "Variant 'v' returned int, not Prepared; a function that decides at once is registered "
            "with @FAMILY.decider."
        )
        with pytest.raises(RegistryError, match=says(sentence)):
            Variant("v", lambda problem: 3, "", "").prepared(None)


def test_an_implementation_is_imported_when_it_is_needed(monkeypatch, tmp_path):
    (tmp_path / "late_work.py").write_text("def build(workload, topology):\n    return 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    lazy = family(implementation="late_work", preload=("scipy.special",))
    assert "late_work" not in sys.modules
    assert lazy.modules == ("late_work", "scipy.special")
    assert lazy.work.build(None, None) == 7
    assert load("late_work:build") is lazy.work.build
    monkeypatch.delitem(sys.modules, "late_work")
