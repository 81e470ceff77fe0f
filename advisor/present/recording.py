"""How to record the next profile, so that it answers what this one does not."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.model.reasons import NSYS_OPTIONS, TORCH_OPTIONS, Option, options
from advisor.model.report import Run


def recording(run: Run) -> str | None:
    """The profiler's call with the options that this profile was recorded without; None where no option would help."""
    if run.source.format == "nsys":
        return _nsys(missing_options(run))
    return _torch(missing_options(run))


def missing_options(run: Run) -> list[Option]:
    """The profiler's options that would have recorded what this profile lacks; none where its reader knows none."""
    reasons = [*run.source.lacks.values(), *(why for rule in run.not_evaluable for why in rule.missing.values())]
    known = {"nsys": NSYS_OPTIONS, "xplane": ()}.get(run.source.format, TORCH_OPTIONS)
    return options(known, [why.code for why in reasons])


def _nsys(missing: Sequence[Option]) -> str | None:
    lines = [f" \\\n    {option.option}" for option in missing]
    return f"nsys profile --trace=cuda,nvtx,osrt{''.join(lines)} <command>\n" if missing else None


def _torch(missing: Sequence[Option]) -> str | None:
    if not missing:
        return None
    lines = "".join(f"    {option.option},  # {option.adds}\n" for option in missing)
    return (
        "with torch.profiler.profile(\n"
        "    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],\n"
        "    schedule=schedule(skip_first=10, wait=1, warmup=2, active=10, repeat=1),\n"
        '    on_trace_ready=tensorboard_trace_handler("logdir"),\n'
        f"{lines}) as prof:\n"
        "    for batch in loader:\n"
        "        run_step(batch)\n"
        "        prof.step()  # marks the end of a step\n"
    )
