"""Call stacks of a recording: the frames worth reading, and the lines of the user's code."""

import re
from typing import Final

from advisor.inputs.names.stacks import is_of_library, user_line
from advisor.model.finding import Finding
from advisor.present.document import SourceLine

_FRAMES: Final = 5
_SEPARATOR: Final = re.compile(r"[;\n]")


def frames(stack: str) -> list[str]:
    """The few frames of a stack that show most: the user's own, innermost first; of libraries where there are none."""
    every = [frame.strip() for frame in _SEPARATOR.split(stack) if frame.strip()]
    own = [frame for frame in every if not is_of_library(frame)]
    return (own or every)[:_FRAMES]


def source_lines(finding: Finding) -> tuple[SourceLine, ...]:
    """The lines of the user's code that the finding's places lie in, each once: the innermost frame of each."""
    lines = (_own(place.stack) for place in finding.where if place.stack)
    return tuple(dict.fromkeys(line for line in lines if line is not None))


def _own(stack: str) -> SourceLine | None:
    """The innermost frame outside of libraries; frames are separated by `;` or new lines, innermost first."""
    lines = map(user_line, _SEPARATOR.split(stack))
    return next((SourceLine(*line) for line in lines if line), None)
