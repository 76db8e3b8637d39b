"""What is read from files is never run."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# What is read from files must never be run. Reviewed exceptions, by file and name:
REVIEWED = {
    # Messages of a child, which runs the user's own code anyway.
    ("harness/execution/messages.py", "pickle"),
    # Machine code, which only this user's processes can write, in a folder of their own.
    ("planners/embedding/search/compiling.py", "pickle"),
    # Drivers of the real upstreams, which are part of this repository.
    ("harness/execution/upstream_child.py", "run_path"),
    ("harness/series/running.py", "run_path"),
}

FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code", "yaml"}

FORBIDDEN_CALLS = {"eval", "exec", "__import__", "run_path", "run_module"}

LOADERS = {"torch.load", "np.load", "numpy.load"}


def runs_what_it_reads(source: str) -> set[str]:
    """Return the names in a source by which something that is read could be run."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & FORBIDDEN_MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module} & FORBIDDEN_MODULES
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            is_of_a_module = "." in name and not name.startswith(("runpy.", "builtins."))
            last = name.rpartition(".")[2]
            if name in LOADERS or last == "read_pickle":
                found.add(name)
            elif last in FORBIDDEN_CALLS and not is_of_a_module:
                found.add(last)
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle", {"pickle"}),
        ("from pickle import loads", {"pickle"}),
        ("eval('1')", {"eval"}),
        ("builtins.exec('1')", {"exec"}),
        ("torch.load(path)", {"torch.load"}),
        ("pd.read_pickle(path)", {"pd.read_pickle"}),
        ("re.compile('1'); model.eval()", set()),
    ],
)
def test_the_reader_of_sources_sees_it(source: str, found: set[str]):
    assert runs_what_it_reads(source) == found


def test_nothing_that_is_read_is_run():
    found = {
        (str(path.relative_to(ROOT)), name)
        for package in ("harness", "reports", "shardbench", "planners")
        for path in (ROOT / package).rglob("*.py")
        for name in runs_what_it_reads(path.read_text(encoding="utf-8"))
    }
    assert found == REVIEWED
