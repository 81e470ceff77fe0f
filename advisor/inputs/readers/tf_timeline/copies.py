"""A copy of a timeline with nothing but the fields that are read, its texts masked."""

from pathlib import Path

from advisor.inputs.chrome_json.copies import clean_copy as copy
from advisor.inputs.readers.tf_timeline import TIMELINE, Args


def clean_copy(path: Path, target: Path) -> list[str]:
    """Write the copy; what it lacks, in words."""
    return copy(path, target, TIMELINE, Args.__struct_fields__)
