"""The architecture page names every folder of code, and no other folder."""

import re

from documented import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = ("harness", "planners", "reports", "shardbench", "benchmarks")
# The first word of the rows of its tables of folders.
NAMED = set(re.findall(rf"^\| `((?:{'|'.join(PACKAGES)})[\w/]*)` \|", PAGE, re.MULTILINE))
# What only holds folders needs no row.
ONLY_FOLDERS = {"harness", "reports"}


def folders() -> set[str]:
    return {
        str(file.parent.relative_to(ROOT))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
    }


def test_every_folder_has_a_row_and_every_row_a_folder():
    assert folders() - ONLY_FOLDERS == NAMED


def test_folders_are_four_deep_at_most():
    assert [folder for folder in folders() if folder.count("/") > 3] == []
