"""Where compiled kernels are kept on disk, so that only the first run compiles.

What is kept names the kernel's stamp (`rota.jit_stamp`), the types and the compiler settings it was
made for, and its own digest. Anything else, or a folder that cannot be written, means compiling
again, never an error.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
from contextlib import nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any

from numba.core import config
from numba.core.caching import FunctionCache, IndexDataCacheFile, _Cache

from rota.jit_lock import alone
from rota.jit_stamp import Ingredients

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


def _settings() -> tuple[Any, ...]:
    """Settings of Numba that change the machine code and that its own cache does not look at."""
    return (
        config.BOUNDSCHECK, str(config.OPT), config.DEBUGINFO_DEFAULT, config.DISABLE_INTEL_SVML,
    )  # fmt: skip


class _Files(IndexDataCacheFile):  # type: ignore[misc]
    """Numba's index and data files; nothing is believed that does not say what it is.

    Data are written before the index that names them. So whoever is interrupted, runs out of
    disk or writes at the same time as another leaves at worst something that is not found.
    """

    def save(self, key: Any, data: Any) -> None:
        known = self._load_index()
        taken = set(known.values())
        name = known.get(key) or next(n for n in map(self._data_name, count(1)) if n not in taken)
        self._save_data(name, (self._source_stamp, key, data))
        if key not in known:
            self._save_index({**self._load_index(), key: name})

    def load(self, key: Any) -> Any:
        name = self._load_index().get(key)
        if name is None:
            return None
        stamp, kept_for, data = self._load_data(name)
        return data if stamp == self._source_stamp and kept_for == key else None

    def _load_index(self) -> dict[Any, str]:
        try:
            known = super()._load_index()
        except Exception:  # whatever somebody's broken file makes of the unpickler
            return {}
        return known if isinstance(known, dict) else {}

    def _save_data(self, name: str, data: Any) -> None:
        body = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(hashlib.sha256(body).digest())
            file.write(body)

    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:
            digest, body = file.read(32), file.read()
        if hashlib.sha256(body).digest() != digest:
            raise ValueError(f"{name} is damaged.")
        return pickle.loads(body)


class _Kept(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function, with our stamp and files."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Files(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=Ingredients(function).stamp(),
        )

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        # Of code and closure, which Numba would add here, the stamp knows more; and Numba's digest
        # of a part in a closure differs from process to process.
        return sig, codegen.magic_tuple(), _settings()

    def name_of(self, sig: Any, codegen: Any) -> str:
        """Names the kernel for these types among all that are kept in its folder."""
        return f"{self._impl.filename_base} {self._index_key(sig, codegen)}"

    def known(self, codegen: Any) -> list[Any]:
        """The types for which there is machine code that this process can use."""
        own = self._index_key((), codegen)[1:]
        return [key[0] for key in self._cache_file._load_index() if key[1:] == own]


class KernelCache(_Cache):  # type: ignore[misc]
    """Keeps the machine code of one kernel, if it can; made anew when first asked.

    By then the kernel's module has been imported to its end, and kernels that nobody calls cost
    no time.
    """

    told = False
    """Whether the user knows that nothing can be kept."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._kept: _Kept | None = None
        self._enabled = True

    def _open(self) -> _Kept | None:
        if self._kept is None and self._enabled:
            try:
                self._kept = _Kept(self._function)
            except Exception as error:  # Numba found no folder to write to
                self._give_up(error)
        return self._kept if self._enabled else None

    def _give_up(self, error: Exception) -> None:
        self._enabled = False
        if not KernelCache.told:
            KernelCache.told = True
            logging.getLogger(__name__).warning(
                "Compiled code cannot be kept, so every run compiles again: %s "
                "Set NUMBA_CACHE_DIR to a folder that can be written.",
                error,
            )

    @property
    def cache_path(self) -> Any:
        kept = self._open()
        return None if kept is None else kept.cache_path

    def alone(self, sig: Any, target_context: Any) -> AbstractContextManager[Any]:
        """Keep other processes from compiling for these types; wait if one does."""
        kept = self._open()
        if kept is None:
            return nullcontext()
        return alone(kept.cache_path, kept.name_of(sig, target_context.codegen()))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The machine code for these types, or None."""
        kept = self._open()
        if kept is None:
            return None
        try:
            return kept.load_overload(sig, target_context)
        except Exception:  # damaged, or not what it says: as if it were not there
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the machine code for these types, if that is possible."""
        kept = self._open()
        if kept is None:
            return
        try:
            kept.save_overload(sig, data)
        except Exception as error:  # such as a full disk
            self._give_up(error)

    def known(self, target_context: Any) -> list[Any]:
        """The types for which there is machine code on disk."""
        kept = self._open()
        return [] if kept is None else kept.known(target_context.codegen())

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        kept = self._open()
        if kept is not None:
            kept.flush()
