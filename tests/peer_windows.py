"""Steps as the peers time them, so that their numbers stay an oracle of the arithmetic: marks, not periods."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from advisor.model.profile import Profile


def windows_of_marks(profile: Profile) -> Profile:
    """Each step from its mark's start, or the end of the step before, to its mark's end or that of its last kernel.

    Source: torch-tb-profiler, run_generator.py and profiler/data.py (`_update_steps_duration`).
    """
    ends = (
        profile.device_ops.filter(pl.col("kind").is_in(["kernel", "collective"]))
        .group_by("step")
        .agg(kernel_end=(pl.col("start_ns") + pl.col("dur_ns")).max())
    )
    steps = (
        profile.steps.join(ends, on="step", how="left", maintain_order="left")
        .with_columns(end=pl.max_horizontal(pl.col("host_start_ns") + pl.col("mark_ns"), "kernel_end"))
        .with_columns(start_ns=pl.max_horizontal("host_start_ns", pl.col("end").shift(1)))
        .with_columns(dur_ns=pl.col("end") - pl.col("start_ns"), host_dur_ns="mark_ns")
        .select(profile.steps.columns)
    )
    return replace(profile, steps=steps)
