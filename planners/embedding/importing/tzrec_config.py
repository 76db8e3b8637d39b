"""Parses the config of a TorchEasyRec model into protobuf messages of the fields read here.

Names, types and defaults are those of tzrec/protos of alibaba/TorchEasyRec; other fields are
skipped. Every kind of feature in a config gets a field, so that unknown kinds can be reported.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
    text_format,
)

from harness.contract import UsageError

MOST_NESTED = 64
MOST_BYTES = 2**26
_MOST_KINDS = 1000
_MOST_QUOTED = 200

_SCHEMA: Mapping[str, Mapping[str, str]] = {
    "Config": {"feature_configs": "repeated Holder", "model_config": "Model"},
    "Feature": {
        **dict.fromkeys(("feature_name", "sequence_name", "embedding_name"), "string"),
        **dict.fromkeys(("data_type", "vocab_file"), "string"),
        **dict.fromkeys(("hash_bucket_size", "num_buckets", "default_bucketize_value"), "uint64"),
        **dict.fromkeys(("embedding_dim", "value_dim", "sequence_length"), "uint64"),
        "stub_type": "bool",
        "boundaries": "repeated double",
        "vocab_list": "repeated string",
        "vocab_dict": "repeated Feature.VocabDictEntry",
        "zch": "Zch",
        "dynamicemb": "DynamicEmbedding",
        "embedding_constraints": "Constraints",
        "features": "repeated Holder",
    },
    "Feature.VocabDictEntry": {"key": "string", "value": "uint64"},
    "Zch": {"zch_size": "uint64"},
    "DynamicEmbedding": {"max_capacity": "uint64"},
    "Constraints": {},
    "Model": {
        "feature_groups": "repeated Group",
        **dict.fromkeys(("deepfm", "wide_and_deep", "xdeepfm"), "Wide"),
    },
    "Wide": {"wide_embedding_dim": "uint64"},
    "Group": {
        "feature_names": "repeated string",
        "group_type": "GroupType",
        "embedding_name_suffix": "string",
        "sequence_groups": "repeated Group",
    },
}
_GROUP_TYPES = ("DEEP", "WIDE", "SEQUENCE", "JAGGED_SEQUENCE")
# Paths of messages that hold one feature, in a field named by the kind of feature.
_HOLDERS = (("feature_configs",), ("feature_configs", "sequence_feature", "features"))

FieldPath = tuple[str, ...]


class Config(NamedTuple):
    """A parsed config; `places` locates the messages that hold a feature, outer before inner."""

    message: Any
    places: tuple[str, ...]


def parse_text(data: bytes, file: str) -> Config:
    """Parse a config in protobuf's text format (up to 64 MiB); raises UsageError with the line."""
    if len(data) > MOST_BYTES:
        raise UsageError(f"{file} must hold at most {MOST_BYTES:,} bytes of protobuf text.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{file} cannot be read: protobuf text must be UTF-8.") from None
    message, places = _prepared(_text_messages(text), file)
    lines = array("L")

    def tokens() -> Iterator[str]:
        for line, token in _tokens(text):
            lines.append(line)
            yield token

    try:
        # Protobuf's errors copy the whole line, which is slow for long lines: one token is a line.
        text_format.ParseLines(tokens(), message, allow_unknown_field=True)
    except text_format.ParseError as error:
        number = min(error.GetLine() or len(lines), len(lines))
        reason = re.sub(r"^\d+:\d+ : ", "", str(error)).rstrip(".")[:_MOST_QUOTED]
        raise UsageError(f"{file}, line {lines[number - 1]}: {reason}.") from None
    return Config(message, places)


def parse_json(held: Mapping[str, Any], file: str) -> Config:
    """Parse a config in protobuf's JSON form; raises UsageError for a wrong field."""
    message, places = _prepared(_json_messages(held), file)
    try:
        json_format.ParseDict(held, message, ignore_unknown_fields=True)
    except (json_format.ParseError, AttributeError, TypeError, ValueError) as error:
        reason = str(error).rstrip(".")[:_MOST_QUOTED]
        raise UsageError(f"{file} is no config of TorchEasyRec: {reason}.") from None
    return Config(message, places)


def _prepared(messages: Iterable[tuple[FieldPath, str]], file: str) -> tuple[Any, tuple[str, ...]]:
    """Return an empty config with a field for each kind of feature, and the features' places."""
    places = []
    kinds: dict[str, None] = {}
    for path, place in messages:
        if len(path) > MOST_NESTED:
            raise UsageError(
                f"{file}, {place}: messages must be nested {MOST_NESTED} deep at most."
            )
        if path in _HOLDERS:
            places.append(f"{file}, {place}")
        elif path[:-1] in _HOLDERS and len(kinds) < _MOST_KINDS:
            kinds[path[-1]] = None
    names = [kind for kind in kinds if re.fullmatch(r"[a-z][a-z0-9_]*", kind, re.ASCII)]
    return _message_class(names)(), tuple(places)


def _message_class(kinds: Iterable[str]) -> Any:
    """Return the protobuf class of configs with these kinds of features."""
    file = descriptor_pb2.FileDescriptorProto(name="tzrec.proto", package="tzrec")
    group_type = file.enum_type.add(name="GroupType")
    for number, name in enumerate(_GROUP_TYPES):
        group_type.value.add(name=name, number=number)
    messages: dict[str, Any] = {}
    for name, fields in {**_SCHEMA, "Holder": dict.fromkeys(kinds, "Feature")}.items():
        outer, _, own = name.rpartition(".")
        message = messages[outer].nested_type.add(name=own) if outer else file.message_type.add()
        message.name, messages[name] = own, message
        message.options.map_entry = bool(outer)
        for number, (field, declared) in enumerate(fields.items(), start=1):
            label, _, kind = declared.rpartition(" ")
            added = message.field.add(name=field, number=number)
            added.label = added.LABEL_REPEATED if label else added.LABEL_OPTIONAL
            if kind.islower():
                added.type = added.Type.Value(f"TYPE_{kind.upper()}")
            else:
                added.type_name = f".tzrec.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tzrec.Config"))


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        tokenizer = text_format.Tokenizer([line])
        while not tokenizer.AtEnd():
            yield number, tokenizer.token
            tokenizer.NextToken()


def _text_messages(text: str) -> Iterator[tuple[FieldPath, str]]:
    """Yield the field path and the first line of each message in protobuf's text format."""
    path: FieldPath = ()
    name = ""
    for line, token in _tokens(text):
        if token in ("{", "<"):
            path = (*path, name)
            yield path, f"line {line}"
        elif token in ("}", ">") and path:
            *outer, name = path  # the next message of a list has the same name
            path = tuple(outer)
        elif token.isidentifier():
            name = token


def _json_messages(
    held: Mapping[str, Any], path: FieldPath = (), place: str = ""
) -> Iterator[tuple[FieldPath, str]]:
    """Yield the field path and the place of each message in protobuf's JSON form."""
    for key, value in held.items():
        name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower()
        for number, message in enumerate(value if isinstance(value, list) else [value], start=1):
            if isinstance(message, dict):
                inner = f"{place}{name} {number}"
                yield (*path, name), inner
                yield from _json_messages(message, (*path, name), f"{inner}, ")
