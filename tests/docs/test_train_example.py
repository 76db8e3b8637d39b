"""The training example, run as a reader would run it."""

import re

import pytest
from documented import ROOT, run_python

pytestmark = pytest.mark.long

EXAMPLE = ROOT / "docs" / "examples" / "train_with_plan.py"


def test_two_ranks_train_alike_with_every_plan(tmp_path):
    printed = run_python(str(EXAMPLE), folder=tmp_path)
    jobs = re.findall(r"^(\S.*): loss (\S+) to (\S+)\n((?:  .*\n)+)", printed, re.MULTILINE)
    names, first, last, plans = zip(*jobs, strict=True)
    assert names == ("TorchRec's planner", "same-plan", "best-plan")
    assert len(set(first)) == len(set(last)) == 1
    assert float(last[0]) < float(first[0])
    assert plans[0] == plans[1]
    for plan in plans:
        tables = [line.split() for line in plan.splitlines()]
        assert [table[0] for table in tables] == ["city", "item", "shop", "user"]
        assert dict(table[:2] for table in tables)["user"] == "row_wise"
        assert set(re.findall(r"rank (\d+):", plan)) == {"0", "1"}
