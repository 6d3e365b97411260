"""Text on disk: read with a clear word about what is wrong, written whole or not at all."""

from __future__ import annotations

import gzip
import os
import zlib
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from rota.errors import RotaError, TraceError

if TYPE_CHECKING:
    from pathlib import Path

_GZIP: Final = b"\x1f\x8b"
_NOT_TEXT: Final = {
    b"PK\x03\x04": "a zip archive or spreadsheet; unpack it or save it as CSV",
    b"\xfd7zXZ": "compressed with xz; unpack it with `unxz`",
    b"BZh": "compressed with bzip2; unpack it with `bunzip2`",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it with `unzstd`",
    b"PAR1": "a Parquet file; save it as CSV",
    b"SQLite format 3": "an SQLite database; export the jobs as CSV",
    b"\xff\xfe": "UTF-16 text; convert it with `iconv -f UTF-16 -t UTF-8`",
    b"\xfe\xff": "UTF-16 text; convert it with `iconv -f UTF-16 -t UTF-8`",
}


def read_text(path: Path) -> str:
    """Read a UTF-8 file, gzipped or not: the content decides, not the name."""
    file = str(path)
    data = _read_bytes(path)
    for magic, what in _NOT_TEXT.items():
        if data.startswith(magic):
            raise TraceError(f"This is no text file but {what}.", file=file)
    if b"\0" in data:
        raise TraceError(
            f"This is a binary file (a NUL byte at byte {data.index(0)}), not a job log.", file=file
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TraceError(
            f"Byte {error.start} (0x{data[error.start]:02x}) is not UTF-8. If the file is Latin-1, "
            f"convert it: iconv -f LATIN1 -t UTF-8 FILE > NEW",
            file=file,
            line=line,
        ) from None
    if not text.strip():
        raise TraceError("The file is empty.", file=file)
    return text


def _read_bytes(path: Path) -> bytes:
    file = str(path)
    if path.is_dir():
        raise TraceError("This is a directory; name one of the files in it.", file=file)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TraceError(f"There is no such file.{_neighbour(path)}", file=file) from None
    except OSError as error:
        raise TraceError(f"The file cannot be read: {error.strerror}.", file=file) from None
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(
            f"The gzip data are cut short or damaged ({error}); fetch the file again.", file=file
        ) from None


def _neighbour(path: Path) -> str:
    try:
        names = [other.name for other in path.parent.iterdir()]
    except OSError:
        return f" Nor is there a directory {str(path.parent)!r}."
    close = get_close_matches(path.name, names, n=1)
    return f" Did you mean {str(path.with_name(close[0]))!r}?" if close else ""


def write_text(path: Path, text: str) -> None:
    """Write UTF-8, gzipped if the name ends in `.gz`; a failure leaves the old file as it was."""
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)  # same trace, same bytes
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            with draft.open("xb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())  # a full disk may say so only now
            draft.replace(path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
    except OSError as error:
        raise RotaError(
            f"Cannot write {path}: {error.strerror or error}. "
            f"{len(data):,} bytes are needed; whatever was there before is untouched."
        ) from None
