"""A recording of the program, checked: what is worth trying."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from advisor.config import find, load
from advisor.engine import check
from advisor.errors import ReadError
from advisor.model.missing import Missing
from advisor.model.report import Reason, Report
from advisor.options import Options
from advisor.recording.launcher import Options as Recording
from advisor.text import one_line
from advisor.trials.processes import Program, run

_PATIENCE_S: Final = 600.0
_LINE: Final = 200


def diagnosed(program: Program) -> Report | Reason:
    """The report of a recording of the program; why there is none."""
    logdir = program.folder / "recording"
    logdir.mkdir()
    config = asdict(Recording(stop=True)) | {"logdir": str(logdir)}
    ended = run(program, config, {}, time.monotonic() + _PATIENCE_S, lambda _: None)
    try:
        return check([str(logdir)], Options(config=load(find(program.cwd or Path.cwd()))))
    except ReadError:
        code = "program_failed" if ended.exit_code else "no_step_recorded"
        return Reason.of(Missing(code, code=ended.exit_code, line=one_line(ended.line, _LINE)))
