"""The features of a TorchEasyRec config: how many rows each looks up, and how many at a time.

Fields and rules are those of tzrec/protos/feature.proto and tzrec/features of alibaba/TorchEasyRec.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from harness.contract import UsageError
from planners.embedding.importing.drafts import Notes
from planners.embedding.importing.tzrec_config import Message, whole

# These have a table in any case; of the others, only those that turn their value into an index.
_SPARSE = ("id_feature", "combo_feature", "bool_mask_feature", "tokenize_feature")
_KINDS = (
    *_SPARSE,
    *("raw_feature", "lookup_feature", "match_feature", "expr_feature", "overlap_feature"),
    *("custom_feature", "kv_dot_product", "combine_feature"),
)
_SEQUENCE = "sequence_feature"
_MANY_VALUED = ("id_feature", "combo_feature", "bool_mask_feature", "tokenize_feature")


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that looks up a table of `rows` x `dim` elements.

    `pooling_factor` is how many indices a sample has, None where the config does not say it.
    """

    place: str
    name: str
    embedding: str
    rows: int
    dim: int
    dtype: str
    pooling_factor: float | None
    is_sequence: bool
    is_constrained: bool


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a feature with a table has where its config does not say it, None for nothing."""

    rows: int | None = None
    dim: int | None = None


@dataclass(frozen=True, slots=True)
class _Given:
    """A feature as the config gives it, by itself or in a sequence of some length."""

    kind: str
    message: Message
    name: str
    is_sequence: bool
    length: int | None


def read_features(
    config: Message, used: frozenset[str] | None, defaults: Defaults, notes: Notes
) -> tuple[Feature, ...]:
    """Return the features that look up tables; what else there is, is noted as left out.

    `used` holds the names of features that are in a feature group, None where all count.

    Raises:
        UsageError: a feature contradicts itself, or its name is given twice.
    """
    features = []
    places: dict[str, str] = {}
    for given in _all_given(config, notes):
        if given.name in places:
            raise UsageError(
                f"{given.message.place}: feature '{given.name}' is there already, "
                f"in {places[given.name].rpartition(', ')[2]}."
            )
        places[given.name] = given.message.place
        if used is not None and given.name not in used:
            notes.leave_out("features in no feature group, for which no table is made", given.name)
        elif given.message.flag("stub_type"):
            notes.leave_out("features that only others are made from (stub_type)", given.name)
        elif feature := _feature(given, defaults, notes):
            features.append(feature)
    return tuple(features)


def _all_given(config: Message, notes: Notes) -> Iterator[_Given]:
    for holder in config.messages("feature_configs"):
        kind, message = _only(holder)
        if kind != _SEQUENCE:
            is_sequence = kind.startswith("sequence_")
            length = message.whole("sequence_length") if is_sequence else None
            name = _name(message, "feature_name")
            yield from _known(
                kind.removeprefix("sequence_"), message, name, is_sequence, length, notes
            )
            continue
        sequence = _name(message, "sequence_name")
        length = message.whole("sequence_length")
        for inner in message.messages("features"):
            kind, part = _only(inner)
            name = f"{sequence}__{_name(part, 'feature_name')}"
            yield from _known(kind, part, name, True, length, notes)


def _known(
    kind: str, message: Message, name: str, is_sequence: bool, length: int | None, notes: Notes
) -> Iterator[_Given]:
    if kind in _KINDS:
        yield _Given(kind, message, name, is_sequence, length)
    else:
        notes.leave_out(f"features of a kind that is not known here ({kind})", name)


def _only(holder: Message) -> tuple[str, Message]:
    if len(holder.fields) != 1 or not isinstance(holder.fields[0][1], Message):
        raise UsageError(
            f"{holder.place}: feature_configs must hold one feature, such as id_feature {{ ... }}."
        )
    kind, message = holder.fields[0]
    assert isinstance(message, Message)
    return kind, message


def _name(message: Message, field: str) -> str:
    name = message.text(field)
    if not name:
        raise UsageError(f"{message.place}: {field} is missing.")
    return name


def _feature(given: _Given, defaults: Defaults, notes: Notes) -> Feature | None:
    message, name = given.message, given.name
    rows = _rows(given, notes)
    if rows is None and given.kind in _SPARSE and defaults.rows is not None:
        notes.assume(f"{defaults.rows:,} rows for features without a size", name)
        rows = defaults.rows
    if rows is None:
        if message.text("vocab_file"):
            why = "features whose rows only their vocab_file tells"
        elif given.kind in _SPARSE:
            why = "features without a size, such as num_buckets or hash_bucket_size"
        else:
            why = "features of numbers, which look up no table"
        notes.leave_out(why, name)
        return None
    dim = message.whole("embedding_dim")
    if not dim and defaults.dim is not None:
        notes.assume(f"dim {defaults.dim} for features without embedding_dim", name)
        dim = defaults.dim
    if not dim:
        raise UsageError(f"{message.place}: feature '{name}' has rows, but no embedding_dim.")
    return Feature(
        place=message.place,
        name=name,
        embedding=message.text("embedding_name") or f"{name}_emb",
        rows=rows,
        dim=dim,
        dtype=message.text("data_type") or "FP32",
        pooling_factor=_pooling_factor(given),
        is_sequence=given.is_sequence,
        is_constrained=bool(message.all("embedding_constraints")),
    )


def _rows(given: _Given, notes: Notes) -> int | None:
    """Return the rows of a feature's table in TorchEasyRec's order of what may say it."""
    message = given.message
    for holder, field in (("zch", "zch_size"), ("dynamicemb", "max_capacity")):
        if inside := message.message(holder):
            size = inside.whole(field)
            if size is None:
                raise UsageError(f"{inside.place}: {holder} has no {field}.")
            notes.leave_out(f"what {holder} keeps beside the rows", given.name)
            return size
    for field in ("hash_bucket_size", "num_buckets"):
        if (size := message.whole(field)) is not None:
            return size
    # Without a default of their own, index 0 is the default value and index 1 any unknown word.
    has_default = message.whole("default_bucketize_value") is not None
    if words := len(message.all("vocab_list")):
        return words + (0 if has_default else 2)
    if message.all("vocab_dict"):
        return 1 + max(_indices(message))
    if message.text("vocab_file"):
        return None
    if boundaries := len(message.all("boundaries")):
        return boundaries + 1
    return None


def _indices(message: Message) -> Iterator[int]:
    for entry in message.messages("vocab_dict"):
        if len(entry.all("value")) == 1 and len(entry.all("key")) == 1:
            yield from (whole(value, "value") for value in entry.scalars("value"))
        else:  # the JSON form of a map has its keys as names
            yield from (
                whole(value, "value") for name, _ in entry.fields for value in entry.scalars(name)
            )


def _pooling_factor(given: _Given) -> float | None:
    values = given.message.whole("value_dim")
    if given.is_sequence:
        return None if given.length is None else float(given.length * max(values or 1, 1))
    if values:
        return float(values)
    return None if given.kind in _MANY_VALUED or values == 0 else 1.0
