"""The documentation site has every document and every public name."""

import re
from inspect import ismodule

import pytest
import yaml
from documented import ROOT

import harness.contract
import shardbench

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
# Made of README, CONTRIBUTING and CHANGELOG by docs/site/hooks.py.
GENERATED = {"index.md", "contributing.md", "changelog.md"}


def pages(nav: object) -> list[str]:
    """Return the pages of a navigation, in its order."""
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [page for each in inner for page in pages(each)]


def test_each_document_is_in_the_navigation_once():
    written = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert sorted(pages(SITE["nav"])) == sorted(written | GENERATED)


OF_CONTRACT = [
    name
    for name, value in vars(harness.contract).items()
    if not name.startswith("_") and not ismodule(value)
]


@pytest.mark.parametrize(
    ("page", "module", "names"),
    [("drop-ins", shardbench, shardbench.__all__), ("contract", harness.contract, OF_CONTRACT)],
    ids=["drop-ins", "contract"],
)
def test_the_reference_has_each_public_name_once(page, module, names):
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    named = re.findall(rf"^::: {module.__name__}\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(names)
