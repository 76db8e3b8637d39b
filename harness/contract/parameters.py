"""Parameters of workloads, declared as structs: every field with its limits and its default."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, convert, inspect, structs

from harness.contract.abilities.workloads import is_captured_file
from harness.model.errors import UsageError, unknown
from harness.model.ids import WorkloadSpec, whole_number

CAPTURED_FILE = "FILE.json.gz"
"""The name under which a family declares the parameters of its captured files."""

Seed = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


class Parameters(Struct, frozen=True, kw_only=True):
    """Parameters of one kind of workload; a subclass declares them as fields with defaults.

    A field is an int or a float with limits, a Literal, or a tuple of these; a tuple gives the
    separator of its items in `Meta(extra={"separator": "x"})`. A subclass can raise ValueError in
    `__post_init__` for values that exclude each other.
    """


P = TypeVar("P", bound=Parameters)


def workload_parameters(spec: WorkloadSpec, family: str, kinds: Mapping[str, type[P]]) -> P:
    """Return a workload's parameters as the struct that a family declares for its name.

    For a captured file it is the struct under the key CAPTURED_FILE. Raise UsageError for an
    unknown name or parameter, or a value that is not allowed.
    """
    name = CAPTURED_FILE if is_captured_file(spec.name) else spec.name
    if name not in kinds:
        raise unknown(f"workload of family '{family}',", spec.name, kinds)
    return read_parameters(spec, kinds[name])


def read_parameters(spec: WorkloadSpec, kind: type[P]) -> P:
    """Return a workload's parameters as a `kind`; raise UsageError for a wrong name or value."""
    fields = {field.encode_name: field.type for field in structs.fields(kind)}
    spec.check_parameters(fields)
    values = {}
    for key, text in spec.parameters.items():
        declared = inspect.type_info(fields[key])
        if isinstance(declared, inspect.UnionType):  # with None, which stands for the default
            declared = declared.types[0]
        try:
            values[key] = convert(_parsed(text, declared), fields[key])
        except ValueError:
            raise UsageError(
                f"Parameter '{key}' of workload '{spec}' must be {_allowed(declared)}, "
                f"not '{text}'."
            ) from None
    try:
        return convert(values, kind)
    except ValueError as error:
        raise UsageError(f"Workload '{spec}': {error}.") from None


def _parsed(text: str, kind: inspect.Type) -> Any:
    """Convert a text to a number or a list, or return it unchanged; limits are not checked."""
    match kind:
        case inspect.IntType():
            return whole_number(text)
        case inspect.FloatType():
            return float(text)
        case inspect.Metadata(type=inspect.VarTupleType(item_type=item), extra={"separator": mark}):
            return [_parsed(part, item) for part in text.split(mark)]
    return text


def _allowed(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata(type=inspect.VarTupleType() as items, extra={"separator": mark}):
            at_most = f", at most {items.max_length} of them" if items.max_length else ""
            return f"{_allowed(items.item_type)}, or several joined by {mark}{at_most}"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}"
        case inspect.FloatType(gt=above, ge=least, lt=below, le=most):
            words = ("above", "of at least", "below", "at most")
            limits = zip(words, (above, least, below, most), strict=True)
            listed = ", ".join(f"{word} {limit:g}" for word, limit in limits if limit is not None)
            return f"a number {listed}".strip()
        case inspect.IntType(ge=least, le=None):
            return f"a whole number of at least {least}"
        case inspect.IntType(ge=least, le=most):
            return f"a whole number from {least} to {most:,}"
    raise TypeError(f"A parameter cannot be of type {kind}.")
