"""Finds the tables that the feature groups of a TorchEasyRec config look up.

The rules are those of tzrec/features and tzrec/modules/embedding.py of alibaba/TorchEasyRec. A
feature looks up the table `embedding_name` if set, else a table of its own. Groups of type WIDE and
groups with an `embedding_name_suffix` have separate tables.
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from harness.contract import UsageError
from planners.embedding.importing.drafts import Draft, Notes, known_dtype
from planners.embedding.importing.tzrec_config import Config
from planners.embedding.tables.files import Lookup

# These always have a table; other kinds only if they turn their value into an index.
_SPARSE = ("id_feature", "combo_feature", "bool_mask_feature", "tokenize_feature")
_KINDS = (
    *_SPARSE,
    *("raw_feature", "lookup_feature", "match_feature", "expr_feature", "overlap_feature"),
    *("custom_feature", "kv_dot_product", "combine_feature"),
)
_DEEP, _WIDE, _SEQUENCE = range(3)  # _SEQUENCE and above are sequences
_WIDE_DIMS = {"deepfm": 4, "wide_and_deep": 4, "xdeepfm": 16}


class Defaults(NamedTuple):
    """Assumed rows and dim of a table (None: no assumption), and assumed indices per sample."""

    rows: int | None
    dim: int | None
    pooling_factor: float


class _Feature(NamedTuple):
    """A feature of a config; `length` is the length of its sequence, or 0 if not given."""

    place: str
    kind: str
    name: str
    message: Any
    is_sequence: bool
    length: int


@dataclass(slots=True)
class _SharedTable:
    """A table and its features, which all look it up in the same way."""

    first: _Feature
    rows: int
    dim: int
    dtype: str
    features: dict[str, _Feature] = field(default_factory=dict)


_SharedTables = dict[tuple[str, Lookup], _SharedTable]
"""Tables by name and kind of lookup: TorchEasyRec keeps a copy of a table for each kind."""


def drafts_of(config: Config, source: str, defaults: Defaults, notes: Notes) -> Iterator[Draft]:
    """Yield a Draft for each table of a config, in order; raises UsageError for contradictions."""
    if not config.message.feature_configs:
        raise UsageError(f"{source} has no feature_configs, so it is no config of TorchEasyRec.")
    tables = _shared_tables(config, defaults, notes)
    for (name, lookup), table in tables.items():
        if dtype := known_dtype(table.dtype, name, notes):
            factors = [_pooling_factor(f, defaults, notes) for f in table.features.values()]
            place = table.first.place
            yield Draft(place, name, table.rows, table.dim, tuple(factors), dtype, lookup)
        if any(f.message.HasField("embedding_constraints") for f in table.features.values()):
            notes.left_out["embedding_constraints, which no file of tables holds"].append(name)


def _shared_tables(config: Config, defaults: Defaults, notes: Notes) -> _SharedTables:
    """Return the tables of a config; add a note for each feature without a table."""
    model = config.message.model_config
    groups = tuple(_groups(model))
    wide = next((name for name in _WIDE_DIMS if model.HasField(name)), "wide_and_deep")
    wide_dim = getattr(model, wide).wide_embedding_dim or _WIDE_DIMS[wide]
    used = frozenset[str]().union(*(names for names, _, _ in groups))
    tables: _SharedTables = {}
    places: dict[str, str] = {}
    for feature in _features(config):
        name = feature.name
        if feature.kind not in _KINDS:
            reason = f"features of an unknown kind ({feature.kind})"
            notes.left_out[reason].append(name)
            continue
        if name in places:
            raise UsageError(
                f"{feature.place}: feature '{name}' is there already, "
                f"in {places[name].rpartition(', ')[2]}."
            )
        places[name] = feature.place
        if groups and name not in used:
            reason = "features in no feature group, for which no table is made"
            notes.left_out[reason].append(name)
        elif feature.message.stub_type:
            notes.left_out["features that only serve to make others (stub_type)"].append(name)
        elif (rows := _rows(feature, defaults, notes)) is not None:
            dim = _dim(feature, defaults, notes)
            if not groups and feature.is_sequence:
                reason = "lookups as sequences for sequence features, as there is no feature group"
                notes.assumed[reason].append(name)
            alone = ({name}, _SEQUENCE if feature.is_sequence else _DEEP, "")
            for names, kind, suffix in groups or (alone,):
                if name in names:
                    _share(tables, feature, rows, wide_dim if kind == _WIDE else dim, kind, suffix)
    return tables


def _groups(model: Any) -> Iterator[tuple[Set[str], int, str]]:
    """Yield the feature names, the type and the table-name suffix of each feature group."""
    for group in model.feature_groups:
        suffix = group.embedding_name_suffix
        yield set(group.feature_names), group.group_type, suffix
        for inner in group.sequence_groups:
            yield set(inner.feature_names), _SEQUENCE, inner.embedding_name_suffix or suffix


def _features(config: Config) -> Iterator[_Feature]:
    places = iter(config.places)
    for holder in config.message.feature_configs:
        place = next(places)
        kind, message = _only(holder, place)
        length = message.sequence_length
        if kind != "sequence_feature":
            known = kind.removeprefix("sequence_")
            name = _name(message, "feature_name", place)
            yield _Feature(place, known, name, message, kind != known, length)
            continue
        sequence = _name(message, "sequence_name", place)
        for inner in message.features:
            place = next(places)
            kind, part = _only(inner, place)
            name = f"{sequence}__{_name(part, 'feature_name', place)}"
            yield _Feature(place, kind, name, part, True, length)


def _only(holder: Any, place: str) -> tuple[str, Any]:
    """Return the kind and the message of the only feature in a `feature_configs` message."""
    fields = holder.ListFields()
    if len(fields) != 1:
        raise UsageError(
            f"{place}: feature_configs must hold one feature, such as id_feature {{ ... }}."
        )
    ((declared, message),) = fields
    return declared.name, message


def _name(message: Any, key: str, place: str) -> str:
    name: str = getattr(message, key)
    if not name:
        raise UsageError(f"{place}: {key} is missing.")
    return name


def _rows(feature: _Feature, defaults: Defaults, notes: Notes) -> int | None:
    """Return the number of rows of a feature's table; if it has no table, None, with a note."""
    rows = _stated_rows(feature, notes)
    is_sparse = feature.kind in _SPARSE
    if rows is None and is_sparse and defaults.rows is not None:
        reason = f"{defaults.rows:,} rows for features without a size"
        notes.assumed[reason].append(feature.name)
        return defaults.rows
    if rows is None:
        if feature.message.vocab_file:
            reason = "features with rows only in their vocab_file"
        elif is_sparse:
            reason = "features without a size, such as num_buckets or hash_bucket_size"
        else:
            reason = "features of numbers, which look up no table"
        notes.left_out[reason].append(feature.name)
    return rows


def _stated_rows(feature: _Feature, notes: Notes) -> int | None:
    """Return the number of rows in a feature's config, by TorchEasyRec's precedence of fields."""
    message = feature.message
    for holder, size in (("zch", "zch_size"), ("dynamicemb", "max_capacity")):
        if message.HasField(holder):
            if not getattr(message, holder).HasField(size):
                raise UsageError(f"{feature.place}: {holder} has no {size}.")
            notes.left_out[f"the data of {holder} other than rows"].append(feature.name)
            return int(getattr(getattr(message, holder), size))
    for size in ("hash_bucket_size", "num_buckets"):
        if message.HasField(size):
            return int(getattr(message, size))
    if message.vocab_list:
        # Unless a default is set, index 0 is the default and index 1 any unknown word.
        return len(message.vocab_list) + (0 if message.HasField("default_bucketize_value") else 2)
    if message.vocab_dict:
        return 1 + int(max(message.vocab_dict.values()))
    if message.boundaries and not message.vocab_file:
        return len(message.boundaries) + 1
    return None


def _dim(feature: _Feature, defaults: Defaults, notes: Notes) -> int:
    dim: int = feature.message.embedding_dim
    if not dim and defaults.dim is not None:
        notes.assumed[f"dim {defaults.dim} for features without embedding_dim"].append(feature.name)
        dim = defaults.dim
    if not dim:
        raise UsageError(
            f"{feature.place}: feature '{feature.name}' has rows, but no embedding_dim."
        )
    return dim


def _pooling_factor(feature: _Feature, defaults: Defaults, notes: Notes) -> float:
    """Return the number of indices per sample; add a note if the config does not contain it."""
    message, values = feature.message, int(feature.message.value_dim)
    if feature.is_sequence and feature.length:
        factor = float(feature.length * max(values, 1))
        reason = "the maximum length as the pooling factor of sequence features"
        notes.assumed[reason].append(f"{feature.name} {factor:g}")
        return factor
    if not feature.is_sequence and values:
        return float(values)
    if not (feature.is_sequence or feature.kind in _SPARSE or message.HasField("value_dim")):
        return 1.0
    assumed = defaults.pooling_factor
    reason = f"pooling factor {assumed:g} for features without a number of values"
    notes.assumed[reason].append(feature.name)
    return assumed


def _share(
    tables: _SharedTables, feature: _Feature, rows: int, dim: int, kind: int, suffix: str
) -> None:
    """Add a feature to the table that it looks up in a group of this kind and suffix.

    Raises UsageError if another feature of the table has other rows, dim or data type.
    """
    name = feature.message.embedding_name or f"{feature.name}_emb"
    name += ("_wide" if kind == _WIDE else "") + (f"_{suffix}" if suffix else "")
    added = _SharedTable(feature, rows, dim, feature.message.data_type or "FP32")
    lookup: Lookup = "sequence" if kind >= _SEQUENCE else "pooled"
    table = tables.setdefault((name, lookup), added)
    for what, one, other in (
        ("rows", table.rows, added.rows),
        ("dim", table.dim, added.dim),
        ("data_type", table.dtype, added.dtype),
    ):
        if one != other:
            raise UsageError(
                f"{feature.place}: features '{table.first.name}' and '{feature.name}' share table "
                f"'{name}', but the {what} of one is {one} and of the other {other}."
            )
    table.features[feature.name] = feature
