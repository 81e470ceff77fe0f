"""A copy of a Kineto trace without secrets."""

from pathlib import Path

import msgspec

from advisor.inputs.chrome_json import copies
from advisor.inputs.readers.kineto.fields import KINETO, Args


def clean_copy(path: Path, target: Path) -> list[str]:
    """Write the copy; the names of the fields that it lacks."""
    return copies.clean_copy(path, target, KINETO, [field.encode_name for field in msgspec.structs.fields(Args)])
