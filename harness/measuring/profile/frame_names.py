"""Name a profiler's frames by module and qualified name, without paths of this machine."""

import re
import sys
import warnings
from functools import cache
from pathlib import Path
from types import CodeType

from pyinstrument.frame_info import ATTRIBUTES_SEP, IDENTIFIER_SEP

from harness.measuring.profile.flame_graph import BUILT_IN, Frame

_CLASS_NAME = "c"
# The prefix that pybind11 puts before the name of every function.
_PYBIND = re.compile(r"^pybind11_detail_function_record_\w+\.")
_OF_THIS_PROCESS = ("__main__", "__mp_main__")


class FrameNames:
    """Find the names of frames; modules that are imported later are not found."""

    def __init__(self) -> None:
        self._modules: dict[str, str] = {}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__dict__", {}).get("__file__")
            if isinstance(file, str) and name not in _OF_THIS_PROCESS:
                self._modules.setdefault(file, name)
        self.frame = cache(self._frame)
        self.without_path = cache(self._without_path)

    def _frame(self, info: str) -> Frame:
        """Return the frame for `info`, pyinstrument's text for a frame."""
        name, file, line, class_name = _parts(info)
        module = BUILT_IN
        if file != BUILT_IN:
            module = self._module(file)
            own = f"{class_name}.{name}" if class_name else name
            name = _qualified_names(file).get((line, name), own)
        return Frame(_text(module), _text(name.replace(".<locals>.", ".")))

    def _without_path(self, info: str) -> str:
        """Return `info` with the path shortened to begin at the package, without folders above."""
        name, file, line, class_name = _parts(info)
        if not file.startswith("<"):
            path = Path(file)
            depth = self._module(file).count(".") + (2 if path.stem == "__init__" else 1)
            file = "/".join(path.parts[-depth:])
        attributes = f"{ATTRIBUTES_SEP}{_CLASS_NAME}{class_name}" if class_name else ""
        return _text(IDENTIFIER_SEP.join((name, file, str(line))) + attributes)

    def _module(self, file: str) -> str:
        if file.startswith("<"):
            return file.removeprefix("<frozen ").removesuffix(">") if "frozen" in file else file
        if file in self._modules:
            return self._modules[file]
        path = Path(file)
        for root in sorted(filter(None, sys.path), key=len, reverse=True):
            if path.is_relative_to(root):
                return ".".join(path.relative_to(root).with_suffix("").parts)
        return path.stem


def _parts(info: str) -> tuple[str, str, int, str]:
    """Split pyinstrument's text into function, file, first line, and class (empty for none)."""
    identifier, *attributes = info.split(ATTRIBUTES_SEP)
    name, file, line = [*identifier.split(IDENTIFIER_SEP), "", ""][:3]
    classes = [text[1:] for text in attributes if text.startswith(_CLASS_NAME)]
    number = int(line) if line.isdecimal() else 0
    return _PYBIND.sub("", name), file, number, classes[0] if classes else ""


@cache
def _qualified_names(file: str) -> dict[tuple[int, str], str]:
    """Return the qualified name of each function in a file, by first line and name.

    The profiler only knows the class of the object that a method runs on, not the class that
    defines the method, so an inherited method would have a different name in each subclass.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            pending = [compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)]
    except (OSError, SyntaxError, ValueError):
        return {}
    found: dict[tuple[int, str], str] = {}
    while pending:
        for code in pending.pop().co_consts:
            if isinstance(code, CodeType):
                found[code.co_firstlineno, code.co_name] = code.co_qualname
                pending.append(code)
    return found


def _text(name: str) -> str:
    """Return a name that can be encoded as UTF-8: a path may contain bytes that are not."""
    return name.encode("utf-8", "replace").decode("utf-8")
