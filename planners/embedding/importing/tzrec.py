"""Tables of a TorchEasyRec config: what its feature groups make of its features.

The rules are those of tzrec/modules/embedding.py of alibaba/TorchEasyRec: a feature looks up the
table of its `embedding_name`, or of its own; groups of type WIDE, and groups with an
`embedding_name_suffix`, have tables of their own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from harness.contract import UsageError
from planners.embedding.importing.drafts import Draft, Notes, dtype_of
from planners.embedding.importing.features import Defaults, Feature, read_features
from planners.embedding.importing.tzrec_config import Message

_WIDE_DIM = 4
_SEQUENCES = ("SEQUENCE", "JAGGED_SEQUENCE", "2", "3")
_WIDE = ("WIDE", "1")


@dataclass(frozen=True, slots=True)
class _Group:
    features: frozenset[str]
    is_wide: bool = False
    is_sequence: bool = False
    suffix: str = ""

    def table(self, feature: Feature) -> str:
        """Return which table a feature looks up in this group."""
        name = feature.embedding + ("_wide" if self.is_wide else "")
        return f"{name}_{self.suffix}" if self.suffix else name


@dataclass(slots=True)
class _Shared:
    """A table, and the features that look it up."""

    first: Feature
    dim: int
    features: dict[str, Feature] = field(default_factory=dict)
    is_pooled: bool = False
    is_sequence: bool = False


def drafts_of(
    config: Message, source: str, pooling_factor: float, defaults: Defaults, notes: Notes
) -> Iterator[Draft]:
    """Yield the tables of a config, in the order of its features.

    `pooling_factor` is what a feature has whose number of values the config leaves open.

    Raises:
        UsageError: it is no config of features, or contradicts itself.
    """
    if not config.all("feature_configs"):
        raise UsageError(f"{source} has no feature_configs, so it is no config of TorchEasyRec.")
    model = config.message("model_config") or Message((), config.place)
    groups = tuple(_groups(model))
    used = frozenset[str]().union(*(group.features for group in groups)) if groups else None
    features = read_features(config, used, defaults, notes)
    tables: dict[str, _Shared] = {}
    for feature in features:
        for group in groups or (_Group(frozenset((feature.name,))),):
            if feature.name in group.features:
                dim = _wide_dim(model) if group.is_wide else feature.dim
                _share(tables, group, feature, dim)
    for name, table in tables.items():
        dtype = dtype_of(table.first.dtype)
        if dtype is None:
            kind = f"tables of data type {table.first.dtype}, which the planner here does not know"
            notes.leave_out(kind, name)
            continue
        factors = tuple(_factor(each, pooling_factor, notes) for each in table.features.values())
        yield Draft(table.first.place, name, table.first.rows, table.dim, factors, dtype)
    _note_what_is_lost(tables, notes)


def _groups(model: Message) -> Iterator[_Group]:
    for group in model.messages("feature_groups"):
        kind = group.text("group_type") or "DEEP"
        suffix = group.text("embedding_name_suffix")
        names = frozenset(value.text for value in group.scalars("feature_names"))
        yield _Group(names, kind in _WIDE, kind in _SEQUENCES, suffix)
        for inner in group.messages("sequence_groups"):
            names = frozenset(value.text for value in inner.scalars("feature_names"))
            yield _Group(
                names, is_sequence=True, suffix=inner.text("embedding_name_suffix") or suffix
            )


def _wide_dim(model: Message) -> int:
    for _, value in model.fields:
        if isinstance(value, Message) and (dim := value.whole("wide_embedding_dim")):
            return dim
    return _WIDE_DIM


def _share(tables: dict[str, _Shared], group: _Group, feature: Feature, dim: int) -> None:
    name = group.table(feature)
    table = tables.setdefault(name, _Shared(feature, dim))
    for what, one, other in (
        ("rows", table.first.rows, feature.rows),
        ("dim", table.dim, dim),
        ("data_type", table.first.dtype, feature.dtype),
    ):
        if one != other:
            raise UsageError(
                f"{feature.place}: features '{table.first.name}' and '{feature.name}' share table "
                f"'{name}', but the {what} of one is {one} and of the other {other}."
            )
    table.features[feature.name] = feature
    table.is_sequence |= group.is_sequence
    table.is_pooled |= not group.is_sequence


def _factor(feature: Feature, otherwise: float, notes: Notes) -> float:
    if feature.pooling_factor is None:
        what = f"pooling factor {otherwise:g} for features whose number of values is left open"
        notes.assume(what, feature.name)
        return otherwise
    if feature.is_sequence:
        what = "the longest a sequence can be as the pooling factor of sequence features"
        notes.assume(what, f"{feature.name} {feature.pooling_factor:g}")
    return feature.pooling_factor


def _note_what_is_lost(tables: Mapping[str, _Shared], notes: Notes) -> None:
    for name, table in tables.items():
        if table.is_pooled and table.is_sequence:
            notes.leave_out(
                "the second copy that TorchEasyRec has of tables that are looked up pooled and as "
                "sequences",
                name,
            )
        if any(feature.is_constrained for feature in table.features.values()):
            notes.leave_out("embedding_constraints, which no file of tables holds", name)
