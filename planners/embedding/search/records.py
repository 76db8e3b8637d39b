"""A numba type for NamedTuples of arrays that compiled code passes by reference.

By default, numba passes every field of every array in a tuple as a separate argument, about a
hundred of them. Unpacking and repacking these took half of the code that LLVM compiled and half of
the search's run time.
"""

from collections.abc import Sequence
from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.datamodel import PrimitiveModel
from numba.core.imputils import lower_getattr_generic
from numba.core.pythonapi import NativeValue, unbox
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import register_model, typeof_impl


class Record(types.Type):
    """Numba type of a NamedTuple that compiled code passes as a single pointer."""

    def __init__(self, of: Any, fields: Sequence[types.Type]) -> None:
        self.tuple = types.NamedTuple([getattr(field, "tuple", field) for field in fields], of)
        self.fields = dict(zip(of._fields, fields, strict=True))
        super().__init__(f"Record({self.tuple})")


def record_of(of: Any, fields: Sequence[types.Type]) -> Record:
    """Return the numba type of the NamedTuple `of`, and register it for values of that class."""
    record = Record(of, fields)

    def type_of(value: Any, context: Any) -> Record | None:
        # Check all fields: compiled code would misread an array of another type.
        found = [typeof_impl(field, context) for field in value]
        return record if found == list(record.fields.values()) else None

    typeof_impl.register(of)(type_of)
    return record


@infer_getattr
class _Fields(AttributeTemplate):
    key = Record

    def generic_resolve(self, record: Record, name: str) -> Any:
        return record.fields.get(name)


@register_model(Record)
class _Pointer(PrimitiveModel):
    def __init__(self, manager: Any, record: Record) -> None:
        super().__init__(manager, record, manager[record.tuple].get_value_type().as_pointer())

    def from_argument(self, builder: Any, value: Any) -> Any:
        # Copies the attributes of the result's pointer (noalias, nocapture): the fields are never
        # written and the pointer is not kept, so LLVM may read a field once, before a loop.
        value.attributes.update(builder.function.args[0].attributes)
        return value


def _field(_: Any, builder: Any, record: Record, value: Any, name: str) -> Any:
    place = cgutils.gep_inbounds(builder, value, 0, list(record.fields).index(name))
    return place if isinstance(record.fields[name], Record) else builder.load(place)


def _from_python(record: Record, value: Any, context: Any) -> NativeValue:
    struct = context.context.get_value_type(record).pointee
    place = cgutils.alloca_once(context.builder, struct, zfill=True)
    _fill(record, value, place, context)
    return NativeValue(place)


def _fill(record: Record, value: Any, struct: Any, context: Any) -> None:
    """Write the array structs without numba's type checks: `type_of` has checked all types."""
    builder, api = context.builder, context.pyapi
    for index, field in enumerate(record.fields.values()):
        item = api.tuple_getitem(value, index)
        place = cgutils.gep_inbounds(builder, struct, 0, index)
        if isinstance(field, Record):
            _fill(field, item, place, context)
        elif isinstance(field, types.Array):
            api.numba_array_adaptor(item, builder.bitcast(place, api.voidptr))
        else:
            builder.store(context.unbox(field, item).value, place)


lower_getattr_generic(Record)(_field)
unbox(Record)(_from_python)
