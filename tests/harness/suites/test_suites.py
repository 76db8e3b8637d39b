"""Suites in TOML: the requests that they make, and one sentence for each fault in them."""

from pathlib import Path

import pytest
import toy
import toy_registries

from harness.measuring.request import Request
from harness.model.errors import UsageError
from harness.suites.declared import read_suite

STUDY = """
[[study]]
family = "toy"
workloads = ["toy[size={size}]"]
topologies = ["dgx_a100_80gb:2"]
[study.matrix]
size = [4, 6]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ladder.toml"


def read(path: Path, text: str) -> tuple[str, list[Request]]:
    path.write_text(text, encoding="utf-8")
    return read_suite(path, toy_registries.toy_registry())


def test_a_short_one_is_read(path: Path):
    """Each workload and topology is filled in with the values of the matrix that it names."""
    name, requests = read(
        path,
        """
        name = "ladder"
        [[study]]
        family = "toy"
        variants = ["same", "own"]
        workloads = ["toy[size={size}]", "toy"]
        topologies = ["dgx_a100_80gb:{gpus}", "dgx_h100:8"]
        against = "plain"
        purpose = "to see"
        [study.matrix]
        size = [4, "6"]
        gpus = [2, 4]
        """,
    )
    assert name == "ladder"
    assert [str(each.problem) for each in requests] == [
        *(f"toy[size={size}]/dgx_a100_80gb:{gpus}" for size in (4, 6) for gpus in (2, 4)),
        *(f"toy[size={size}]/dgx_h100:8" for size in (4, 6)),
        *(f"toy/dgx_a100_80gb:{gpus}" for gpus in (2, 4)),
        "toy/dgx_h100:8",
    ]
    for each in requests:
        assert each.names() == {"same", "own", "plain"}
        assert (each.against, each.purpose) == ("plain", "to see")


def test_what_is_left_out_is_the_usual(path: Path):
    """All variants are compared with the reference."""
    name, requests = read(path, STUDY)
    assert name == "ladder", "as the file is called"
    for each in requests:
        assert each.names() == set(toy.TOY.variants)
        assert each.against == "reference"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Object missing required field `study`."),
        ("study", "is not TOML: "),
        ("nam = 3\n" + STUDY, "Unknown key 'nam'; did you mean name?"),
        (
            STUDY + STUDY.replace("family", "famly"),
            "'study[1]': Object contains unknown field `famly`",
        ),
        (STUDY.replace('"toy"', '"ty"'), "Unknown family 'ty'; did you mean toy?"),
        (STUDY.replace("workloads =", "against = 'sane'\nworkloads ="), "did you mean same?"),
        (
            STUDY.replace("workloads =", "variants = ['sane']\nworkloads ="),
            "Unknown variant of family 'toy', 'sane'; did you mean same?",
        ),
        (STUDY.replace("dgx_a100_80gb:2", "dgx_a100_80gb"), "must be name:gpus, e.g. dgx_h100:16"),
        (STUDY.replace("dgx_a100_80gb:2", "dgx_a100_80gb:12"), "joins 8 GPUs at a time"),
        (STUDY.replace("{size}", "{sise}"), "Unknown key of [study.matrix], 'sise'; did you mean"),
        (STUDY.replace("{size}", "4"), "'matrix.size' is used nowhere; write {size} in a"),
        (STUDY.replace("toy[size={size}]", "toy[{size}"), "is malformed"),
        (
            STUDY + STUDY.replace("workloads", 'against = "own"\nworkloads'),
            "is to be compared with 'reference' and with 'own'",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence_with_the_file(path: Path, text: str, said: str):
    """Unknown keys and names come with suggestions."""
    with pytest.raises(UsageError) as refused:
        read(path, text)
    assert said in str(refused.value)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_a_matrix_has_an_end(path: Path):
    """A suite of astronomically many problems is refused."""
    keys = "".join(f"k{n} = {list(range(20))}\n" for n in range(6))
    text = STUDY.replace("{size}", "-".join(f"{{k{n}}}" for n in range(6)))
    with pytest.raises(UsageError, match="A matrix makes at most 100000 problems"):
        read(path, text.replace("size = [4, 6]\n", keys))
