"""Protobuf's text format: what it may look like, and a sentence with the line otherwise."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model.errors import UsageError
from planners.embedding.importing.tzrec_config import (
    MOST_NESTED,
    Message,
    Scalar,
    from_json,
    parse_text,
)


def plain(message: Message) -> list[tuple[str, object]]:
    """Return the fields without their places."""
    return [
        (name, plain(value) if isinstance(value, Message) else value.text)
        for name, value in message.fields
    ]


def read(text: str) -> list[tuple[str, object]]:
    return plain(parse_text(text.encode(), "my.config"))


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", []),
        ("# nothing but words\n  # and more", []),
        ("a: 1", [("a", "1")]),
        ("a:1 b:2", [("a", "1"), ("b", "2")]),
        ("a: 1, b: 2; c: 3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a: -5 b: .5", [("a", "-5"), ("b", ".5")]),
        ("a: 1.5e-3f b: 0x1F", [("a", "1.5e-3f"), ("b", "0x1F")]),
        ("kind: DEEP on: true low: -inf", [("kind", "DEEP"), ("on", "true"), ("low", "-inf")]),
        ("a { b: 1 }", [("a", [("b", "1")])]),
        ("a: { b: 1 }", [("a", [("b", "1")])]),
        ("a < b: 1 >", [("a", [("b", "1")])]),
        ("a {} a {}", [("a", []), ("a", [])]),
        ("a: [1, 2,\n3]", [("a", "1"), ("a", "2"), ("a", "3")]),
        ("a: []", []),
        ("a [{ b: 1 }, { b: 2 }]", [("a", [("b", "1")]), ("a", [("b", "2")])]),
        ("a: 'x' # why\nb: \"y#z\"", [("a", "x"), ("b", "y#z")]),
        ("a: 'it' \"'s\"\n  ' one'", [("a", "it's one")]),
        (r'a: "\x1d\t\"\\\101\u00e9\xc3\xa9\U0001F600"', [("a", '\x1d\t"\\Aéé😀')]),
        ("a: '日本語'", [("a", "日本語")]),
        ("\ufeffa: 1\r\nb: 2\r\n", [("a", "1"), ("b", "2")]),
    ],
)  # fmt: skip
def test_what_is_allowed_is_read(text: str, fields: list[tuple[str, object]]):
    assert read(text) == fields


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a: 1\nb 2", 2, "':' or '{' after b is missing before '2'"),
        ("a:\n\n", 3, "the value of a is missing before the end of the file"),
        ("a {\n b: 1\n", 3, "'}', for what begins in line 1"),
        ("a {\n b: 1 >", 2, "is missing before '>'"),
        ("}", 1, "the name of a field is missing before '}'"),
        ("a: [1, 2", 1, "',' or ']' in the list of a"),
        ("a: [1 2]", 1, "',' or ']' in the list of a"),
        ("\na: 'open\nb: 1", 2, "has no end on its line"),
        ("a: 12abc", 1, "'12abc' is nothing that protobuf text can hold"),
        ("a: $", 1, "'$' is nothing"),
        ("a: 1 'x'", 1, "the name of a field is missing before ''x''"),
        (r'a: "\q"', 1, "an escape that makes no text"),
        (r'a: "\xff"', 1, "an escape that makes no text"),
        (r'a: "\ud800"', 1, "an escape that makes no text"),
        (r'a: "\U00110000"', 1, "an escape that makes no text"),
        (r'a: "\777"', 1, "an escape that makes no text"),
        ("a {\n" * 10_000, MOST_NESTED + 1, "nested 64 deep at most"),
    ],
)
def test_what_is_not_allowed_is_one_sentence_with_its_line(text: str, line: int, what: str):
    with pytest.raises(UsageError) as caught:
        read(text)
    said = str(caught.value)
    assert said.startswith(f"my.config, line {line}: ")
    assert what in said
    assert said.endswith(".")


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused_in_one_sentence(data: bytes):
    said = "."
    try:
        parse_text(data, "my.config")
    except UsageError as error:
        said = str(error)
    assert said.isprintable()
    assert said.endswith(".")


names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
fields = st.recursive(
    st.lists(st.tuples(names, st.text(max_size=8))),
    lambda inner: st.lists(st.tuples(names, inner), max_size=4),
    max_leaves=10,
)


def written(values: list[tuple[str, object]]) -> str:
    """Write fields as protobuf text, every byte of a text as an escape."""
    return " ".join(
        f"{name} {{ {written(value)} }}"
        if isinstance(value, list)
        else f'{name}: "{escaped(str(value))}"'
        for name, value in values
    )


def escaped(text: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in text.encode())


@given(fields)
def test_what_is_written_is_read_again(values: list[tuple[str, object]]):
    assert read(written(values)) == values


@pytest.mark.parametrize(
    ("text", "number"), [("12", 12), ("-3", -3), ("0x1F", 31), ("017", 15), ("0", 0)]
)
def test_whole_numbers_are_read(text: str, number: int):
    assert parse_text(f"n: {text}".encode(), "f").whole("n") == number


@pytest.mark.parametrize("text", ["1.0", "1e6", "true", "'1_000'", "'+5'", "''", "08", "9" * 5000])
def test_what_is_no_whole_number_is_refused(text: str):
    with pytest.raises(UsageError, match="n must be a whole number"):
        parse_text(f"n: {text}".encode(), "f").whole("n")


def test_a_field_that_can_be_there_once_is_refused_twice():
    message = parse_text(b"n: 1\nn: 2", "f")
    with pytest.raises(UsageError, match=r"f, line 2: n is given twice"):
        message.whole("n")
    assert [each.text for each in message.scalars("n")] == ["1", "2"]


def test_a_message_where_a_value_belongs_is_refused_and_the_other_way_round():
    message = parse_text(b"n { }\nm: 1", "f")
    with pytest.raises(UsageError, match="line 1: n must be a value"):
        message.text("n")
    with pytest.raises(UsageError, match="line 2: m must be a message"):
        message.message("m")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("f", False), ("1", True)])
def test_flags_are_read(text: str, value: bool):
    assert parse_text(f"on: {text}".encode(), "f").flag("on") is value
    assert parse_text(b"", "f").flag("on") is False


def test_a_flag_that_is_none_is_refused():
    with pytest.raises(UsageError, match="on must be true or false, not 'maybe'"):
        parse_text(b"on: maybe", "f").flag("on")


def test_the_json_form_reads_like_the_text():
    held = json.loads(
        '{"featureConfigs": [{"idFeature": {"featureName": "a", "numBuckets": "5"}},'
        ' {"id_feature": {"feature_name": "b", "trainable": true, "zch": null}}]}'
    )
    text = """
    feature_configs { id_feature { feature_name: "a" num_buckets: 5 } }
    feature_configs { id_feature { feature_name: "b" trainable: true } }
    """
    assert plain(from_json(held, "my.json")) == read(text)


def test_json_that_is_nested_too_deep_is_refused():
    held: dict[str, object] = {}
    for _ in range(MOST_NESTED + 2):
        held = {"a": held}
    with pytest.raises(UsageError, match="nested 64 deep"):
        from_json(held, "my.json")


def test_places_of_json_say_which_part():
    message = from_json({"parts": [{"n": 1}, {"n": "x"}]}, "my.json")
    with pytest.raises(UsageError, match=r"my.json, parts 2, n: n must be a whole number"):
        message.messages("parts")[1].whole("n")
    assert message.messages("parts")[0].scalars("n") == [Scalar("1", False, "my.json, parts 1, n")]
