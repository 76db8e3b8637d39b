import re

import pytest
from hypothesis import given, settings, strategies as st

from harness.model.errors import UsageError
from harness.model.ids import CellId, ProblemId, WorkloadSpec


def texts(without: str) -> st.SearchStrategy[str]:
    """Draw texts of visible characters except these, with single spaces between words."""
    letters = st.characters(
        codec="utf-8", exclude_categories=["C", "Z"], exclude_characters=without
    )
    words = st.text(letters, min_size=1, max_size=8)
    return st.lists(words, min_size=1, max_size=3).map(" ".join)


specs = st.builds(
    WorkloadSpec,
    texts("[]@"),
    st.dictionaries(texts("[],=@"), texts("[],"), max_size=3),
)
problems = st.builds(ProblemId, specs, texts("/:@"), st.integers(0, 10**6))
cells = st.builds(CellId, texts("/@"), texts("@"), problems)


@pytest.mark.parametrize("kind", [specs, problems, cells], ids=["workload", "problem", "cell"])
@settings(max_examples=15)
@given(st.data())
def test_an_id_reads_as_it_is_written(kind, data: st.DataObject):
    written = data.draw(kind)
    assert type(written).parse(str(written)) == written


@settings(max_examples=15)
@given(cells)
def test_a_cell_s_file_name_suits_every_file_system(cell: CellId):
    assert re.fullmatch(r"[A-Za-z0-9_.=-]*", cell.file_stem)


def test_a_file_is_a_workload():
    problem = ProblemId.parse("some/folder/tables.csv[seed=1]/machines.csv#mine:8")
    assert problem.workload.name == "some/folder/tables.csv"
    assert (problem.topology, problem.gpus) == ("machines.csv#mine", 8)


@settings(max_examples=15)
@given(specs)
def test_equal_workloads_have_equal_hashes(spec: WorkloadSpec):
    reordered = WorkloadSpec(spec.name, dict(reversed(spec.parameters.items())))
    assert reordered == spec
    assert hash(reordered) == hash(spec)


MALFORMED = {
    WorkloadSpec: ["", "  ", "[tables=2]", "a[tables=2", "a]", "a[b[c=1]]", "a[b=1]c", "a@b"],
    ProblemId: ["", "a", "a/b", "a/b:", "a/b:x", "a/b:-1", "a/b:1.5", "/b:1", "a/:1", "a/b@c:1"],
    CellId: ["", "a", "a/b", "a/b@", "a@c/d:1", "/b@c/d:1", "a/@c/d:1"],
}


@pytest.mark.parametrize(("kind", "text"), [(k, text) for k in MALFORMED for text in MALFORMED[k]])
def test_a_malformed_id_is_refused(kind, text: str):
    with pytest.raises(UsageError, match=re.escape(f"'{text}' is malformed")):
        kind.parse(text)


@pytest.mark.parametrize("item", ["tables", "tables=", "=2", "=", " "])
def test_a_malformed_parameter_is_refused(item: str):
    with pytest.raises(UsageError, match=re.escape(f"Parameter '{item}' of workload 'a[{item}]'")):
        WorkloadSpec.parse(f"a[{item}]")
