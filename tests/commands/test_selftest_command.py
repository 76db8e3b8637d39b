import json
from pathlib import Path

import pytest

from shardbench.cli import main


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["selftest", *arguments])
    return int(ended.value.code or 0)


def test_it_says_what_this_machine_resolves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "selftest.json"
    assert run("--rounds", "1", "--seconds", "0.1", "--json", str(file)) == 0
    printed = capsys.readouterr().out
    assert " of 1, that is " in printed
    assert "2 % more lies within the noise floor of 3 %" in printed
    assert "5 % more: found" in printed
    assert "This machine resolves" in printed
    assert max(map(len, printed.splitlines())) <= 90
    document = json.loads(file.read_text())
    assert [tally["percent"] for tally in document["tallies"]] == [0, 2, 5, 10]
    assert document["environment"]["cores"] >= 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--rounds", "0"), "--rounds must be at least 1, not 0."),
        (("--seconds", "-1"), "--seconds must be a positive number of seconds, not -1."),
        (("--json", "/no/such/folder/x.json"), "/no/such/folder is not a folder."),
    ],
)
def test_bad_input_gets_one_sentence(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
