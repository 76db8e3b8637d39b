"""The documentation site has every document and every public name."""

import re

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


@pytest.mark.parametrize(
    ("page", "module"), [("drop-ins", shardbench), ("contract", harness.contract)]
)
def test_the_reference_has_each_public_name_once(page, module):
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    named = re.findall(rf"^::: {module.__name__}\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(module.__all__)
