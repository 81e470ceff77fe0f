"""A recording of the program, checked: what is worth trying."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from advisor.config import find, load
from advisor.engine import check
from advisor.errors import ReadError
from advisor.model.reason import Reason
from advisor.model.report import Report
from advisor.options import Options
from advisor.recording.launcher import Options as Recording
from advisor.trials.processes import Program, run

_PATIENCE_S: Final = 600.0


def diagnosed(program: Program, budget_s: float) -> Report | Reason:
    """The report of a recording, which may take ten minutes or as long as all runs may; why there is none."""
    logdir = program.folder / "recording"
    logdir.mkdir()
    config = asdict(Recording(stop=True)) | {"logdir": str(logdir)}
    ended = run(program, config, {}, time.monotonic() + max(_PATIENCE_S, budget_s), lambda _: None)
    try:
        return check([str(logdir)], Options(config=load(find(program.cwd or Path.cwd()))))
    except ReadError:
        return Reason.of(ended.why("no_step_recorded"))
