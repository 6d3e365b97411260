"""Policies of one's own: a class, a function or an object in a file, a module or a package."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rota.core.seams import Policy
from rota.errors import ConfigError, InputError, RotaError, UnknownNameError
from rota.policies.settings import PolicyEntry, parameters, read_settings, settings_of

if TYPE_CHECKING:
    from types import ModuleType

_NAME: Final = re.compile(
    r"(?P<where>.+?\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<what>[A-Za-z_]\w*)(?P<rest>[:@+].*)?",
    re.DOTALL,
)
"""A path may hold anything, a drive letter and blanks included; a module is a dotted name."""


class OwnName(NamedTuple):
    """The parts of `FILE.py:Name:setting=value,…@oracle` or `module:Name…`."""

    where: str
    what: str
    settings: str
    oracle: bool


def parse_own(name: str) -> OwnName | None:
    """The parts of a name that says where a policy is; None for any other name."""
    found = _NAME.fullmatch(name)
    if found is None:
        if re.search(r"\.py(:|$)", name):
            raise InputError(
                f"{name!r} does not say which policy of the file is meant; write FILE.py:Name, "
                "or FILE.py:Name:setting=value."
            )
        return None
    rest = found["rest"] or ""
    oracle = rest.endswith("@oracle")
    rest = rest.removesuffix("@oracle")
    if rest.startswith("@"):
        raise UnknownNameError("view of a policy", rest[1:], ["oracle"])
    if rest.startswith("+"):
        raise ConfigError(f"Policy {found['what']!r} places jobs itself; leave {rest!r} out.")
    return OwnName(found["where"], found["what"], rest[1:], oracle)


def load_own(own: OwnName) -> Any:
    """What the file or the module has under that name."""
    module = module_of(own.where)
    if not hasattr(module, own.what):
        there = [
            key for key, value in vars(module).items()
            if hasattr(value, "decide") and getattr(value, "__module__", "") == module.__name__
        ]  # fmt: skip
        raise UnknownNameError(f"policy in {own.where}", own.what, there or ["(none found)"])
    return getattr(module, own.what)


def entry_of(thing: Any, source: str) -> PolicyEntry:
    """A class, a function that makes a policy, or a policy itself as an entry of the catalogue."""
    if isinstance(thing, PolicyEntry):
        return thing
    if inspect.isclass(thing) or (not isinstance(thing, Policy) and callable(thing)):
        make: Any = thing
        summary = (inspect.getdoc(thing) or "").partition("\n")[0]
        return PolicyEntry(summary, source, make, settings_of(make), kind="plug-in")
    if not isinstance(thing, Policy):
        raise InputError(f"{source!r} is no policy: it has no method decide(snapshot).")
    return PolicyEntry("", source, lambda: thing, kind="plug-in")


def made(entry: PolicyEntry, name: str, base: str, wanted: str, *, oracle: bool) -> Policy:
    """The policy of an entry with the settings of its name; `name` is the whole of it."""
    takes = parameters(entry.make)
    if oracle and "oracle" not in takes:
        raise ConfigError(f"Policy {base!r} has no field 'oracle'; leave '@oracle' out.")
    given = {"name": name, "oracle": oracle}
    keywords = {key: value for key, value in given.items() if key in takes}
    keywords |= {**entry.preset, **read_settings(base, wanted, entry.settings)}
    for key, parameter in takes.items():
        if key in keywords or parameter.default is not parameter.empty:
            continue
        if key in entry.settings:
            raise ConfigError(f"Policy {base!r} needs the setting {key!r}: {base}:{key}=….")
        raise ConfigError(
            f"Cannot make policy {name!r}: its parameter {key!r} has no default, and no annotation "
            "by which a text could be read; annotate it as int, float, bool or str, or give it a "
            "default."
        )
    try:
        policy = entry.make(**keywords)
    except RotaError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            f"Cannot make policy {name!r}: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(policy, Policy):
        raise InputError(f"{name!r} is no policy: it has no method decide(snapshot).")
    return policy


def module_of(where: str) -> ModuleType:
    """The module of a file, or one that can be imported."""
    try:
        return _from_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            f"Cannot load a policy from {where!r}: {type(error).__name__}: {error}."
        ) from error


def _from_file(path: Path) -> ModuleType:
    """A file's module; the same file is loaded once, and again after it has changed."""
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r} to load a policy from.")
    about = path.stat()
    key = f"{path.resolve()}\n{about.st_mtime_ns}\n{about.st_size}"
    name = f"rota_own_{path.stem}_{hashlib.sha256(os.fsencode(key)).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses whose annotations are texts, and pickles, look their module up there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
