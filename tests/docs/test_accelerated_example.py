"""The example of accelerated training, run as a reader would run it."""

import re

import pytest
from documented import ROOT, run_python

pytestmark = pytest.mark.long

EXAMPLE = ROOT / "docs" / "examples" / "train_accelerated.py"


def test_two_ranks_train_the_same_with_and_without_acceleration(tmp_path):
    printed = run_python(str(EXAMPLE), folder=tmp_path)
    trained, informed, stepped = (printed.splitlines()[first::3] for first in range(3))
    assert stepped == ["OptimizerInfo(local=4, by_torch={})"] * 2
    assert [line.partition(":")[0] for line in trained] == ["FSDP2", "tensor parallel"]
    for line, info in zip(trained, informed, strict=True):
        first, last = map(float, re.findall(r"\d\.\d{4}", line))
        assert last < first
        assert line.endswith("equal: yes")
        counted = {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", info)}
        assert counted["hits"] > 4 * counted["misses"] > 0
        assert counted["entries"] > 0
        assert counted["bytes"] > 0
