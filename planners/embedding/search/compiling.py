"""Decorators that compile the loops of the search with numba and keep the machine code on disk.

A kernel is a compiled function that Python calls. It is compiled once, for the types in its
annotations. Its machine code is kept under a key of the source files of its module and of all
modules that this one imports from the project, the releases of numba and NumPy, and the processor.
So stale machine code is never loaded.
"""

import logging
import os
import pickle
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import numba
import numpy as np
from numba import types
from numba.core import compiler, serialize
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target

from planners.embedding.search.records import record_of

logger = logging.getLogger("shardbench")

F = TypeVar("F", bound=Callable[..., Any])

KERNELS: dict[str, list[Any]] = {}
"""The kernels of each imported module, by the module's name."""

# Turns off numba's reference counts of arrays, which make the innermost loops take eight times as
# long. A function compiled with this option cannot create arrays.
_UNCOUNTED = {"_nrt": False}

# Only compiled code calls a subroutine, so it needs no wrapper for Python, which would take longer
# to compile than most subroutines.
_NO_WRAPPERS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_IMPORT = re.compile(r"^from (planners\.[\w.]+) import (\w*)", re.MULTILINE)


def kernel(function: F) -> F:
    """Compile a function that Python calls and that creates no arrays."""
    dispatcher = numba.njit(no_cfunc_wrapper=True, **_UNCOUNTED)(function)
    if dispatcher is not function:  # NUMBA_DISABLE_JIT
        dispatcher._cache = _Kept(cast(FunctionType, function))
        _signature(cast(FunctionType, function))  # registers its records with numba
        KERNELS.setdefault(function.__module__, []).append(dispatcher)
    return cast(F, dispatcher)


def subroutine(function: F) -> F:
    """Compile a function that kernels call, once for each combination of argument types."""
    dispatcher = numba.njit(pipeline_class=_PartCompiler, **_NO_WRAPPERS, **_UNCOUNTED)(function)
    if dispatcher is not function:
        compile_for = dispatcher.compile
        # Otherwise numba compiles the function again for each constant argument.
        dispatcher.compile = lambda types_: compile_for(tuple(map(types.unliteral, types_)))
    return cast(F, dispatcher)


class _Part(JITCodeLibrary):
    """The code of a subroutine, which LLVM optimizes only as a part of a kernel.

    By default numba also optimizes each subroutine with its callees, and discards the result.
    """

    def _optimize_final_module(self) -> None: ...

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _PartCompiler(compiler.Compiler):
    def compile_extra(self, func: FunctionType) -> Any:
        context = self.state.targetctx
        self.state.library = library = _Part(context.codegen(), func.__qualname__)
        self.state.flags.no_compile = True
        result = super().compile_extra(func)
        key: Any = [].append  # numba's key of a function must be a builtin, a new one each time
        context.insert_user_function(key, result.fndesc, [library])
        return result._replace(entry_point=key)


def load(dispatcher: Any) -> None:
    """Load a kernel into this process; if it is not kept on disk, compile and keep it first."""
    dispatcher.compile(_signature(dispatcher.py_func))


def is_kept(dispatcher: Any) -> bool:
    """Whether a kernel's machine code is kept on disk."""
    kept: _Kept = dispatcher._cache
    return kept.path(_signature(dispatcher.py_func)) is not None


class _Kept:
    """The machine code of a kernel on disk, in place of numba's own numba.core.caching._Cache."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        target_context.refresh()
        # If the file cannot be read, the kernel is compiled again.
        with suppress(OSError, EOFError, ImportError, AttributeError, pickle.UnpicklingError):
            if path := self.path(signature):
                payload = pickle.loads(path.read_bytes())
                return compiler.CompileResult._rebuild(target_context, *payload)
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        try:
            path = kept_folder() / self._name(signature)
            # Renamed when complete, so that no process reads a half-written file.
            part = path.with_suffix(f".{os.getpid()}")
            try:
                part.write_bytes(serialize.dumps(result._reduce()))
                part.rename(path)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("Compiled kernels could not be kept: %s.", error)

    def path(self, signature: Any) -> Path | None:
        """Return the path of the kept machine code, or None."""
        name = self._name(signature)
        return next((f / name for f in _folders() if (f / name).is_file()), None)

    def _name(self, signature: Any) -> str:
        processor = cpu_target.target_context.codegen().magic_tuple()
        parts = (signature, numba.__version__, np.__version__, processor)
        key = sha256("\n".join(map(str, (*parts, _digest(self._function.__module__)))).encode())
        return f"{self._function.__name__.strip('_')}-{key.hexdigest()[:16]}.kernel"


@cache
def _digest(module: str) -> str:
    """Return a hash of the sources of a module and all modules of the project that it imports."""
    sources: dict[str, str] = {}
    names = [module]
    while names:
        name = names.pop()
        path = getattr(sys.modules.get(name), "__file__", None)
        if path and name not in sources:
            sources[name] = Path(path).read_text(encoding="utf-8")
            for package, member in _IMPORT.findall(sources[name]):
                names += [package, f"{package}.{member}"]
    return sha256(repr(sorted(sources.items())).encode()).hexdigest()


@cache
def _signature(function: FunctionType) -> tuple[Any, ...]:
    hints = get_type_hints(function, include_extras=True)
    return tuple(_numba_type(hint) for name, hint in hints.items() if name != "return")


def _numba_type(hint: Any) -> Any:
    """Return numba's type of an annotation: a number, C-contiguous array or NamedTuple of these."""
    if hint in (bool, int, float):
        return {bool: types.boolean, int: types.int64, float: types.float64}[hint]
    if hasattr(hint, "_fields"):
        fields = get_type_hints(hint, include_extras=True).values()
        return record_of(hint, [_numba_type(field) for field in fields])
    dimensions = 1
    if get_origin(hint) is Annotated:
        hint, dimensions = get_args(hint)
    number = get_args(hint)[-1]  # from numpy 2.5 on; before, a dtype of it
    if get_origin(number) is np.dtype:
        (number,) = get_args(number)
    return types.Array(numba.from_dtype(np.dtype(number)), dimensions, "C")


def kept_folder() -> Path:
    """Return the folder for new machine code: the first writable one. Raise OSError if none is."""
    for folder in _folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            return folder
    raise OSError("no folder for compiled kernels can be written; NUMBA_CACHE_DIR can name one")


def _folders() -> list[Path]:
    """Return the folders to look for machine code in: only NUMBA_CACHE_DIR, if it is set.

    Otherwise they are `__pycache__` next to this file, which a container image can contain, and the
    user's cache folder.
    """
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return [Path(chosen)]
    users = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return [Path(__file__).parent / "__pycache__", users / "shardbench"]
