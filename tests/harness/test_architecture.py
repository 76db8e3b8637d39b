"""Imports point one way, and listing what there is stays quick."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("harness", "planners", "reports", "benchmarks", "shardbench")

# What each may import of the others. Only the command line knows how a report is written.
ALLOWED = {
    "harness": set(),
    "planners": {"harness"},
    "reports": {"harness"},
    "benchmarks": {"harness"},
    "shardbench": {"harness", "reports"},
}
# The names that users import are those of planners; no command knows one.
OF_USERS = "shardbench/__init__.py"


def imported_modules(source: str) -> Iterator[str]:
    """Yield the full name of each module that a source imports, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole module"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("import_module", "importlib.import_module", "__import__")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value)


def imports(package: str) -> dict[str, set[str]]:
    """Return the modules that each file of a package imports."""
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, package
    return {
        str(path.relative_to(ROOT)): set(imported_modules(path.read_text(encoding="utf-8")))
        for path in files
    }


def test_the_reader_of_imports_sees_all_of_them():
    source = """
import a.b
from c import d
def function():
    from e.f import g
    import importlib
    importlib.import_module("h.i")
if TYPE_CHECKING:
    import j
"""
    assert set(imported_modules(source)) == {
        *("a.b", "c", "c.d", "e.f", "e.f.g", "importlib", "h.i", "j")
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package: str):
    forbidden = set(PACKAGES) - ALLOWED[package] - {package}
    wrong = {
        (file, module)
        for file, modules in imports(package).items()
        for module in modules
        if module.partition(".")[0] in forbidden - ({"planners"} if file == OF_USERS else set())
    }
    assert wrong == set()


def test_planners_know_of_the_harness_its_registry_alone():
    wrong = {
        (file, module)
        for file, modules in imports("planners").items()
        for module in modules
        if module.startswith("harness") and not f"{module}.".startswith("harness.registry.")
    }
    assert wrong == set()


def test_the_harness_knows_no_planner_by_name():
    families = [path.name for path in (ROOT / "planners").iterdir() if path.is_dir()]
    families = [name for name in families if not name.startswith("_")]
    for path in (ROOT / "harness").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant):
                assert node.value not in families, (path, node.lineno)


@pytest.mark.parametrize(
    "module", ["harness.registry", "harness.measuring.comparison", "shardbench.cli"]
)
def test_no_library_that_takes_seconds_is_imported_to_list_the_variants(module: str):
    script = f"""
import sys
import {module}
from harness.registry import load_registry
registry = load_registry()
assert not registry.failures, registry.failures
for family in registry.families:
    assert family.variants
    for variant in family.variants.values():
        variant.missing()
slow = ("torch", "torchrec", "fbgemm_gpu", "numba", "pandas", "matplotlib")
print([name for name in slow if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
