"""Files as a bad disk or a bad copy leaves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BYTES = 64


def flipped(content: bytes, at: int) -> Iterator[bytes]:
    """The content with one bit flipped, for each bit from byte `at` on."""
    for byte in range(at, min(at + BYTES, len(content))):
        for bit in range(8):
            bad = bytearray(content)
            bad[byte] ^= 1 << bit
            yield bytes(bad)
