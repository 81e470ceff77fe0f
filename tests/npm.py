"""Files out of npm packages that tests hold the project's output against, kept between runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


def packed(package: str, name: str) -> Path:
    """A file of a package (`name@version`), by its path inside; skips the test where it cannot be had."""
    npm = shutil.which("npm")
    if not npm:
        pytest.skip(f"npm is not installed: the test needs {package}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-advisor-tests"
    kept = cache / f"{hashlib.sha256(f'{package} {name}'.encode()).hexdigest()[:12]}-{Path(name).name}"
    if kept.exists():
        return kept
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache) as own:  # another checkout may fetch the same
        call = [npm, "pack", package, "--silent", "--pack-destination", own]
        done = subprocess.run(call, check=False, capture_output=True, text=True, timeout=120)
        if done.returncode:
            pytest.skip(f"npm cannot fetch {package}: {done.stderr.strip()[-200:]}")
        with tarfile.open(Path(own) / done.stdout.split()[-1]) as archive:
            inside = archive.extractfile(f"package/{name}")
            assert inside is not None
            file = Path(own) / kept.name
            file.write_bytes(inside.read())
        file.replace(kept)
    return kept
