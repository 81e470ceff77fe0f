"""How the process handles the memory that it has let go."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1  # mallopt(3)
_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 1 << 30


def reuse_freed() -> None:
    """Tell glibc to use freed memory again, not to hand it back: getting it anew was a tenth of a large check."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        for threshold in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(threshold, _KEPT_BYTES)
