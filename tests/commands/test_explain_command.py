"""`shardbench explain`, as a user calls it."""

import json
import re

CELL = "embedding/uniform@synthetic[tables=5,seed=1]/dgx_a100_80gb:4"


def test_options_ask_the_same_and_files_hold_it(shardbench, tmp_path):
    """The explanation is a JSON or a Markdown file."""
    problem = ("-w", "synthetic[tables=5,seed=1]", "-t", "dgx_a100_80gb", "-n", "4")
    for suffix in ("json", "md"):
        path = tmp_path / f"why.{suffix}"
        options = ("--against", "certified", "--rank", "2", "-o", str(path))
        code, out, err = shardbench("explain", "embedding/uniform", *problem, *options)
        assert code == 0, err
        assert "is the slowest" in out
        assert f"why.{suffix}" in err.replace("\n", "")
    held = json.loads((tmp_path / "why.json").read_text())
    assert (held["format"], held["version"]) == ("shardbench-explanation", 1)
    assert (held["cell"], held["against"]) == (CELL, "certified")
    assert held["explanation"]["rank"]["rank"] == 2
    text = (tmp_path / "why.md").read_text()
    assert all(sentence.split(" ")[0] in text for sentence in held["sentences"])
    assert re.search(r"^\| table \| rows x dim \|", text, re.MULTILINE)


def test_a_single_table_is_explained_and_what_does_not_exist_refused(shardbench):
    """`--table` shows the options of that table alone."""
    code, out, _ = shardbench("explain", CELL, "--table", "table_3")
    assert code == 0
    assert "Table table_3 is placed as" in out
    assert "Alternatives for table_3" in out
    assert "What bounds the result" not in out
    code, _, err = shardbench("explain", CELL, "--table", "table_9")
    assert code == 2
    assert "Unknown table 'table_9'" in err
