"""TorchEasyRec's configs are parsed as protobuf; errors name the line."""

import copy
from typing import Any

import pytest
from hostile import change, changes, read_or_refused, refusal
from hypothesis import given, strategies as st

from harness.model.errors import UsageError
from planners.embedding.importing.tzrec_config import MOST_NESTED, parse_json, parse_text


def feature(text: str) -> Any:
    """Return the feature of a config with a single feature."""
    text = f"feature_configs {{ id_feature {{ {text} }} }}"
    (holder,) = parse_text(text.encode(), "my.config").message.feature_configs
    return holder.id_feature


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("# words { \n  # and more\n num_buckets:1", "num_buckets", 1),
        ("vocab_file: 'x', num_buckets: 0x1F; embedding_dim: 017", "num_buckets", 31),
        ("boundaries: -5 boundaries: .5 boundaries: 1.5e-3f", "boundaries", [-5, 0.5, 1.5e-3]),
        ("boundaries: [1, 2,\n-inf]", "boundaries", [1, 2, float("-inf")]),
        ("vocab_list: 'x#{' # why\nvocab_list: \"y\"", "vocab_list", ["x#{", "y"]),
        ("vocab_list: 'it' \"'s\"\n  ' one'", "vocab_list", ["it's one"]),
        (r'vocab_file: "\x1d\t\"\\\101\u00e9\xc3\xa9"', "vocab_file", '\x1d\t"\\Aéé'),
        ("vocab_file: '日本語'\r\n", "vocab_file", "日本語"),
        ("vocab_dict < key: 'x' value: 2 >", "vocab_dict", {"x": 2}),
        ("vocab_dict: [{ key: 'x' value: 2 }, { key: 'y' }]", "vocab_dict", {"x": 2, "y": 0}),
        ("of_tomorrow { a: [1, { b: x }] } stub_type: t", "stub_type", True),
    ],
)  # fmt: skip
def test_what_is_allowed_is_read(text: str, field: str, value: object):
    found = getattr(feature(text), field)
    assert (list(found) if isinstance(value, list) else found) == value


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\nb 2", 2, 'Expected "{"'),
        ("a: 1\nb {\n c: 1 >", 3, 'Expected "}"'),
        ("a {\n b: 1\n", 2, "Expected identifier"),
        ("a: [1, 2", 1, 'Expected ","'),
        ("\na: 'open\nb: 1", 2, "Invalid field value: 'open"),
        ("a: $", 1, "Invalid field value: $"),
        ("feature_configs {\n id_feature {\nvocab_file: '\\xff' } }", 3, "parse string"),
        ("feature_configs {\n id_feature {\nnum_buckets: 1 num_buckets: 1 } }", 3, "multiple"),
        ("feature_configs {\n id_feature { stub_type:\nmaybe } }", 3, 'Expected "true" or "false"'),
        ("a {\n" * 10_000, MOST_NESTED + 1, "nested 64 deep at most"),
    ],
)
def test_what_is_not_allowed_is_one_sentence_with_its_line(text: str, line: int, said: str):
    found = refusal(lambda: parse_text(text.encode(), "my.config"))
    assert found.startswith(f"my.config, line {line}: ")
    assert said in found


@pytest.mark.parametrize("text", ["1.0", "1e6", "true", "'5'", "08", "-1", "9" * 5000])
def test_what_is_no_whole_number_is_refused(text: str):
    with pytest.raises(UsageError, match=r"^my.config, line 1: "):
        feature(f"num_buckets: {text}")


TOKENS = ("feature_configs", "id_feature", "num_buckets", *":{}<>[],;", "1", "'x'", "\n")


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from(TOKENS)).map(lambda tokens: " ".join(tokens).encode())
)
def test_bytes_of_any_kind_are_read_or_refused_in_one_sentence(data: bytes):
    read_or_refused(lambda: parse_text(data, "my.config"), "my.config")


def test_a_long_line_takes_no_longer_than_many_short_ones():
    text = "a: 1 " * 50_000 + "b"  # quadratic, this takes many minutes
    assert "line 1: " in refusal(lambda: parse_text(text.encode(), "my.config"))


SEQUENCE = {"sequenceName": "s", "features": [{"newFeature": {"featureName": "c"}}]}
JSON = {
    "featureConfigs": [
        {"idFeature": {"featureName": "a", "numBuckets": "5", "vocabDict": {"x": 1}}},
        {"id_feature": {"feature_name": "b", "stub_type": True, "zch": None}},
        {"sequenceFeature": SEQUENCE},
    ],
    "modelConfig": {"featureGroups": [{"featureNames": ["a"], "groupType": "WIDE"}]},
}  # fmt: skip
TEXT = """
feature_configs { id_feature { feature_name: "a" num_buckets: 5 vocab_dict { key: "x" value: 1 } } }
feature_configs { id_feature { feature_name: "b" stub_type: true } }
feature_configs { sequence_feature {
    sequence_name: "s" features { new_feature { feature_name: "c" } } } }
model_config { feature_groups { feature_names: "a" group_type: WIDE } }
"""


def test_the_json_form_reads_like_the_text():
    text, held = parse_text(TEXT.encode(), "my.config"), parse_json(JSON, "my.json")
    assert text.message.SerializeToString() == held.message.SerializeToString()
    assert text.places == tuple(f"my.config, line {line}" for line in (2, 3, 4, 5))
    assert held.places[2:] == (
        "my.json, feature_configs 3",
        "my.json, feature_configs 3, sequence_feature 1, features 1",
    )


@given(changes(JSON))
def test_changed_json_is_read_or_refused_in_one_sentence(wanted):
    held = copy.deepcopy(JSON)
    change(held, wanted)
    read_or_refused(lambda: parse_json(held, "my.json"), "my.json")


def test_json_that_is_nested_too_deep_is_refused():
    held: dict[str, object] = {}
    for _ in range(MOST_NESTED + 2):
        held = {"a": held}
    with pytest.raises(UsageError, match="nested 64 deep"):
        parse_json(held, "my.json")
