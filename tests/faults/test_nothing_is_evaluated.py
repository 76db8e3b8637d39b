"""Input is never unpickled or evaluated, and templates escape all inserted values."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reports.core.page import TEMPLATES, templates

ROOT = Path(__file__).parents[2]
PACKAGES = ("harness", "reports", "shardbench", "planners", "benchmarks")

# What runs what it is given; names as they are called, without the module where it is unmistakable.
RUNNING = {
    *("eval", "exec", "compile", "builtins.eval", "builtins.exec", "os.system", "os.popen"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads"),
    *("shelve.open", "dill.load", "dill.loads", "cloudpickle.load", "cloudpickle.loads"),
    *("joblib.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "torch.load"),
    *("read_pickle", "pd.read_pickle", "pandas.read_pickle", "pd.eval", "pandas.eval"),
    *("runpy.run_path", "runpy.run_module", "code.interact", "subprocess.getoutput"),
}
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
# Also of any object, such as a DataFrame; without an argument it is the mode of a torch module.
METHODS = {"eval", "read_pickle"}
UNSAFE_ARGUMENTS = {"shell": True, "allow_pickle": True, "weights_only": False}

# Each was looked at: none is given a file of other people, or runs it.
REVIEWED = {
    "harness/execution/child.py: pickle": "for the one below",
    "harness/execution/child.py: pickle.loads": "a child's pipe; it runs the user's own code",
    "harness/execution/worker.py: pickle": "for the one below",
    "harness/execution/worker.py: pickle.loads": "the work that the parent sends",
    "planners/embedding/search/compiling.py: pickle": "for the one below",
    "planners/embedding/search/compiling.py: pickle.loads": "machine code that this user has kept",
    "harness/execution/worker.py: runpy.run_path": "a driver that a family names",
    "planners/experts/loads.py: torch.load": "with weights_only, which makes tensors alone",
    "harness/series/driving.py: runpy.run_path": "the same, on a version of the user's choice",
}


def found_in(source: str) -> Iterator[str]:
    """Yield the source text of each call or import that could execute input."""
    names: dict[str, str] = {}
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
            yield from (node.module for _ in node.names if node.module in MODULES)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        first, dot, rest = called.partition(".")
        whole = names.get(first, first) + dot + rest
        is_method = isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
        if whole in RUNNING or (is_method and node.args):
            yield called
        for keyword in node.keywords:
            if keyword.arg in UNSAFE_ARGUMENTS and not (
                isinstance(keyword.value, ast.Constant)
                and keyword.value.value is not UNSAFE_ARGUMENTS[keyword.arg]
            ):
                yield f"{called}({keyword.arg}={ast.unparse(keyword.value)})"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from pickle import loads as read\nread(b'')", ["pickle", "read"]),
        ("import torch as t\nt.load(path)", ["t.load"]),
        ("frame.eval('a + b')", ["frame.eval"]),
        (
            "import numpy as np\nnp.load(path, allow_pickle=chosen)",
            ["np.load(allow_pickle=chosen)"],
        ),
        ("import json, re\njson.loads('1')\nre.compile('a')\nmodel.load(path)", []),
    ],
)
def test_the_reader_of_calls_sees_them(source, found):
    """Calls are known by their whole names, whatever they are imported as."""
    assert list(found_in(source)) == found


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_that_is_read_is_run(package):
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    found = {
        f"{path.relative_to(ROOT)}: {each}"
        for path in files
        for each in found_in(path.read_text(encoding="utf-8"))
    }
    assert found <= REVIEWED.keys()


def test_what_was_reviewed_is_still_there():
    for place in REVIEWED:
        file, _, called = place.partition(": ")
        assert called in set(found_in((ROOT / file).read_text(encoding="utf-8"))), place


def test_html_is_escaped_and_nothing_is_marked_safe():
    """Every template escapes what it inserts, figures too, which pages show as images."""
    assert templates().autoescape is True
    for path in TEMPLATES.glob("*.j2"):
        assert not re.search(r"\|\s*safe\b|autoescape", path.read_text(encoding="utf-8")), path
    made = [
        {keyword.arg for keyword in node.keywords}
        for path in (ROOT / "reports").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Environment")
    ]
    assert made
    assert all("autoescape" in arguments for arguments in made)
