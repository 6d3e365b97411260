"""What a compiled kernel is made of, and the stamp that tells when any of it has changed.

Numba compiles anew when a function's own file changes, but not when a function or a constant
that it takes from elsewhere does, although both are part of the machine code. So here a kernel
has a *stamp*, a digest of all that it is made of:

- the source of its module and of every module of ours that this one imports, directly or not;
- the code, as it is in this process, of every function it calls, and the value of every global
  these read: a file may have changed since it was imported, and a constant may come from a file
  or from the environment.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from functools import cache
from platform import python_version
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import llvmlite
import numba
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_VERSIONS: Final = (numba.__version__, llvmlite.__version__, np.__version__, python_version())
_FOREIGN: Final = (os.path.dirname(os.__file__) + os.sep,)
_INSTALLED: Final = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_FOR_TYPES_ONLY: Final = re.compile(
    r"^if (?:typing\.)?TYPE_CHECKING:.*\n(?:(?:[ \t]+.*)?\n)*", re.MULTILINE
)
_IMPORT: Final = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n;#]*)|import[ \t]+([^\n;#]*))",
    re.MULTILINE,
)


# -- which files a kernel is made of ------------------------------------------------------


@cache
def _read(path: str, _changed_ns: int, _size: int) -> tuple[bytes, tuple[tuple[str, str], ...]]:
    """The digest of a file, and what it imports: (module, names after `import`)."""
    with open(path, "rb") as file:
        source = file.read()
    text = source.decode("utf-8", "ignore").replace("\\\n", " ").replace("\r\n", "\n")
    found = []
    for module, names, plain in _IMPORT.findall(_FOR_TYPES_ONLY.sub("", text)):
        if module:
            found.append((module, names))
        else:
            found += [(part.split(" as ")[0].strip(), "") for part in plain.split(",")]
    return hashlib.sha256(source).digest(), tuple(found)


def _contents(path: str) -> tuple[bytes, tuple[tuple[str, str], ...]]:
    """What `_read` says of the file as it is now; nothing, if it cannot be read."""
    try:
        state = os.stat(path)
        return _read(path, state.st_mtime_ns, state.st_size)
    except OSError:
        return b"", ()


def _file_of(module: str, beside: str) -> str | None:
    """The file of a module by its full name; `beside` is the folder of whoever imports it."""
    loaded = sys.modules.get(module)
    if loaded is not None:
        return getattr(loaded, "__file__", None)
    package, _, name = module.rpartition(".")
    if package:
        folders = list(getattr(sys.modules.get(package), "__path__", ()))
    else:
        folders = [beside]
    for folder in folders:
        for path in (os.path.join(folder, f"{name}.py"), os.path.join(folder, name, "__init__.py")):
            if os.path.isfile(path):
                return path
    return None


def _beside(folder: str, name: str) -> str | None:
    """The file of a relative import `name` ("" for the package itself) as seen from `folder`."""
    base = os.path.join(folder, *name.split(".")) if name else folder
    for path in (f"{base}.py", os.path.join(base, "__init__.py")):
        if os.path.isfile(path):
            return path
    return None


def _imports(path: str) -> Iterator[str]:
    """The files that a file imports, as far as they can be told."""
    here = os.path.dirname(path)
    for module, names in _contents(path)[1]:
        name = module.lstrip(".")
        folder = here
        for _ in range(len(module) - len(name) - 1):
            folder = os.path.dirname(folder)
        found = _beside(folder, name) if module != name else _file_of(name, here)
        parts = [part.split(" as ")[0].strip() for part in names.strip("()\n ").split(",")]
        inner = []
        if names and (found is None or os.path.basename(found) == "__init__.py"):
            for part in filter(str.isidentifier, parts):
                if module != name:
                    inner.append(_beside(folder, f"{name}.{part}" if name else part))
                else:
                    inner.append(_file_of(f"{name}.{part}", here))
        yield from filter(None, inner)
        # A package that is only the way to its modules gives nothing of its own.
        if found is not None and not (inner and all(inner)):
            yield found


def _is_ours(path: str, home: str) -> bool:
    """Whether a file is part of rota, of the package in folder `home`, or installed by nobody."""
    if path.startswith((_HERE, home)):
        return True
    return path.endswith(".py") and not (path.startswith(_FOREIGN) or _INSTALLED.search(path))


_HERE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _home(function: FunctionType) -> str:
    """The folder of the package that a function belongs to, or else of its file."""
    top = sys.modules.get(function.__module__.partition(".")[0])
    folders = list(getattr(top, "__path__", ()))
    folder = folders[0] if folders else os.path.dirname(function.__code__.co_filename)
    return os.path.abspath(folder) + os.sep


# -- what a kernel calls and reads, in this process ---------------------------------------


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _plain(function: Any) -> FunctionType | None:
    """The Python function behind a compiled one."""
    function = getattr(function, "py_func", function)
    return function if isinstance(function, FunctionType) else None


def _global_values(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Names and values of everything a function may read from outside itself."""
    for cell in function.__closure__ or ():
        try:
            yield "", cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield "", function.__defaults__
    outside = function.__globals__
    for code in _codes(function.__code__):
        for name in code.co_names:
            if name not in outside:
                continue
            value = outside[name]
            yield name, value
            if isinstance(value, ModuleType):
                within = vars(value)
                yield from ((n, within[n]) for n in code.co_names if n in within)


def _print_of(value: Any) -> str:
    """A text that differs if a constant's value does; only its type for what has no value."""
    if isinstance(value, np.ndarray):
        kept = np.ascontiguousarray(value)
        if kept.dtype.hasobject:
            return f"array {kept.dtype}"
        return f"{kept.dtype.descr} {kept.shape} {hashlib.sha256(kept.tobytes()).hexdigest()}"
    if isinstance(value, np.void):
        return _print_of(np.asarray(value))
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__} {sorted(map(_print_of, value))}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} {list(map(_print_of, value))}"
    if isinstance(value, dict):
        return f"dict {[(_print_of(key), _print_of(item)) for key, item in value.items()]}"
    if value is None or isinstance(value, (int, float, complex, str, bytes, np.generic, np.dtype)):
        return f"{type(value).__name__} {value!r}"
    return type(value).__name__


class Ingredients:
    """All that a kernel is made of."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.functions: list[FunctionType] = []
        """Those that it calls, itself first."""
        self.constants: list[str] = []
        self._files: list[str] = []
        first = _plain(function)
        assert first is not None
        self._home = _home(first)
        seen: set[int] = set()
        waiting: list[FunctionType] = [first]
        while waiting:
            each = waiting.pop()
            if id(each) in seen or not self._add(each.__code__.co_filename, always=each is first):
                continue
            seen.add(id(each))
            self.functions.append(each)
            for name, value in _global_values(each):
                inner = _plain(value)
                if inner is not None:
                    waiting.append(inner)
                elif isinstance(value, type):
                    self._add_class(value)
                elif not isinstance(value, ModuleType):
                    self.constants.append(f"{name} {_print_of(value)}")

    def _add(self, path: str, *, always: bool = False) -> bool:
        """Count a file among the ingredients if it is ours, and say whether it is."""
        path = os.path.abspath(path)
        if not always and not _is_ours(path, self._home):
            return False
        if path not in self._files:
            self._files.append(path)
        return True

    def _add_class(self, kind: type) -> None:
        path = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if path and self._add(path):
            self.constants.append(f"{kind.__qualname__} {getattr(kind, '_fields', ())}")

    @property
    def files(self) -> list[str]:
        """The files of those functions, and all of ours that they import, sorted."""
        found, waiting = set(self._files), list(self._files)
        while waiting:
            for path in map(os.path.abspath, _imports(waiting.pop())):
                if path not in found and _is_ours(path, self._home):
                    found.add(path)
                    waiting.append(path)
        return sorted(found)

    def stamp(self) -> str:
        """The digest of it all."""
        whole = hashlib.sha256(repr(_VERSIONS).encode())
        for path in self.files:
            whole.update(_contents(path)[0])
        for function in self.functions:
            for code in _codes(function.__code__):
                plain = tuple(c for c in code.co_consts if not isinstance(c, CodeType))
                whole.update(code.co_code)
                whole.update(f"{code.co_names} {code.co_varnames} {_print_of(plain)}".encode())
        whole.update("\n".join(self.constants).encode())
        return whole.hexdigest()
