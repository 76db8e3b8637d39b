"""Ids are read as they are written; others are refused."""

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


@settings(max_examples=30)
@given(cells)
def test_an_id_reads_as_it_is_written(cell):
    """So do its parts; the order of parameters does not count, and every system takes its name."""
    workload = cell.problem.workload
    for part in (cell, cell.problem, workload):
        assert type(part).parse(str(part)) == part
    reordered = WorkloadSpec(workload.name, dict(reversed(workload.parameters.items())))
    assert (reordered, hash(reordered)) == (workload, hash(workload))
    assert re.fullmatch(r"[A-Za-z0-9_.=-]*", cell.file_stem)


def test_a_file_is_a_workload():
    """A path may have the marks that separate the parts of an id."""
    problem = ProblemId.parse("some/folder/tables.csv[seed=1]/machines.csv#mine:8")
    assert problem.workload.name == "some/folder/tables.csv"
    assert (problem.topology, problem.gpus) == ("machines.csv#mine", 8)


MALFORMED = {
    WorkloadSpec: ["", "  ", "[tables=2]", "a[tables=2", "a]", "a[b[c=1]]", "a[b=1]c", "a@b"],
    ProblemId: ["", "a", "a/b", "a/b:", "a/b:x", "a/b:-1", "a/b:1.5", "/b:1", "a/:1", "a/b@c:1"],
    CellId: ["", "a", "a/b", "a/b@", "a@c/d:1", "/b@c/d:1", "a/@c/d:1"],
}
ITEMS = ["tables", "tables=", "=2", "=", " "]


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        *((k, text, f"'{text}' is malformed") for k in MALFORMED for text in MALFORMED[k]),
        *((WorkloadSpec, f"a[{item}]", f"Parameter '{item}' of workload 'a[") for item in ITEMS),
    ],
)
def test_a_malformed_id_is_refused(kind, text, said):
    """The sentence quotes what is wrong."""
    with pytest.raises(UsageError, match=re.escape(said)):
        kind.parse(text)
