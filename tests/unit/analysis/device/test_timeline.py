from __future__ import annotations

import polars as pl
import pytest

from advisor.analysis.device import timeline
from advisor.analysis.device.selection import select_steps
from advisor.analysis.device.timeline import worst_step
from advisor.model.profile import Profile

WORKERS = {"worker": [0], "name": ["rank0"], "framework": ["pytorch"], "file": ["a.json"]}


def profile(
    steps: list[tuple[int, int]], kernels: list[tuple[int, int]], ops: list[tuple[str, str, int, int]]
) -> Profile:
    """Steps, kernels and host ops as (start, length); ops with their kind and name."""
    n, k, o = len(steps), len(kernels), len(ops)
    start, length = zip(*steps, strict=True)
    return Profile.of(
        {
            "workers": pl.DataFrame(WORKERS),
            "steps": pl.DataFrame(
                {
                    "worker": [0] * n,
                    "device": [0] * n,
                    "step": range(n),
                    "start_ns": start,
                    "dur_ns": length,
                    "host_start_ns": start,
                    "host_dur_ns": length,
                }
            ),
            "device_ops": pl.DataFrame(
                {
                    "id": range(k),
                    "worker": [0] * k,
                    "device": [0] * k,
                    "stream": [7] * k,
                    "kind": ["kernel"] * k,
                    "name": [f"k{i}" for i in range(k)],
                    "start_ns": [s for s, _ in kernels],
                    "dur_ns": [d for _, d in kernels],
                }
            ),
            "host_ops": pl.DataFrame(
                {
                    "id": range(o),
                    "worker": [0] * o,
                    "thread": [1] * o,
                    "kind": [kind for kind, *_ in ops],
                    "name": [name for _, name, *_ in ops],
                    "start_ns": [s for *_, s, _ in ops],
                    "dur_ns": [d for *_, d in ops],
                }
            ),
        },
        format="test",
    )


STEPS = [(0, 100), (100, 300), (400, 100)]
KERNELS = [(10, 80), (150, 100), (260, 40), (410, 80)]
OPS = [
    ("op", "outer", 100, 100),
    ("op", "inner", 110, 20),
    ("op", "later", 130, 10),
    ("input", "next", 310, 80),
    ("python", "frame", 100, 290),
]


def worst():
    (view,) = select_steps(profile(STEPS, KERNELS, OPS), "all").views
    drawing = worst_step(view, {"metric": lambda _: pl.DataFrame({"start_ns": [20, 310], "dur_ns": [5, 80]})})
    assert drawing is not None
    return drawing


def test_the_longest_step_is_drawn_from_its_start():
    drawing = worst()
    assert (drawing.step, drawing.start_ns, drawing.dur_ns) == (1, 100, 300)
    assert drawing.events.filter("on_device").select("name", "start_ns", "dur_ns").rows() == [
        ("k1", 50, 100),
        ("k2", 160, 40),
    ]


def test_ranges_lie_as_deep_as_ranges_are_open_around_them():
    depths = dict(worst().events.filter(~pl.col("on_device")).select("name", "depth").rows())
    assert depths == {"outer": 0, "inner": 1, "later": 1, "next": 0}


def test_idle_stretches_fill_what_the_device_leaves():
    idle = worst().idle
    others = [(0, 50, "unknown"), (150, 10, "unknown"), (200, 10, "unknown")]  # no launch was recorded
    assert idle.rows() == [*others, (210, 80, "input"), (290, 10, "unknown")]  # and a gap of two causes has both


def test_the_strip_has_the_times_of_the_accounting():
    """Of a gap of 200 us, 140 are the loader's: the rest is a late launch, and not input as most of the gap is."""
    kernels = [(0, 300_000), (500_000, 500_000)]
    (view,) = select_steps(profile([(0, 1_000_000)], kernels, [("input", "next", 300_000, 140_000)]), "all").views
    drawing = worst_step(view, {})
    assert drawing is not None
    times = dict(drawing.strip.group_by("part").agg(pl.sum("dur_ns")).rows())
    assert times == pytest.approx(drawing.parts_ns, abs=2_500)
    assert times["input"] == pytest.approx(140_000, abs=2_500)


def test_a_strip_shows_what_runs_and_why_nothing_does():
    pieces = [row for row in worst().strip.rows() if row[1] > 1]  # the edges are some ns wide
    shown = [(round(start, -1), round(dur, -1), part) for start, dur, part in pieces]
    assert [shown[at] for at in (1, 3, 5)] == [(50, 100, "compute"), (160, 40, "compute"), (210, 80, "input")]
    assert sum(row[1] for row in worst().strip.rows()) == 300


def test_no_part_is_shown_where_it_does_not_pass():
    """Pieces of 1,250 ns, and two gaps of 500 ns, the first for input: it may not stand in place of the second."""
    kernels = [(500, 12_000), (13_000, 987_000)]
    (view,) = select_steps(profile([(0, 1_000_000)], kernels, [("input", "next", 0, 500)]), "all").views
    drawing = worst_step(view, {})
    assert drawing is not None
    inputs = drawing.strip.filter(pl.col("part") == "input")
    assert [start for start in inputs["start_ns"] if start >= 1_250] == []


def test_of_parts_too_short_for_a_picture_each_has_as_much_of_the_strip_as_of_the_time():
    """4,000 kernels of 3 us, 10 us apart: 30 % of the step, and of every tenth of it, in a strip of 800 pieces."""
    kernels = [(1000 * 10 * n, 3000) for n in range(4000)]
    (view,) = select_steps(profile([(0, 40_000_000)], kernels, []), "all").views
    drawing = worst_step(view, {})
    assert drawing is not None
    strip = drawing.strip.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    for tenth in range(10):
        starts, ends = 4_000_000 * tenth, 4_000_000 * (tenth + 1)
        here = pl.min_horizontal("end_ns", ends) - pl.max_horizontal("start_ns", starts)
        busy = strip.filter(pl.col("part") == "compute").select(here.clip(0).sum()).item()
        assert busy == pytest.approx(0.3 * 4_000_000, abs=2 * 50_000)
    assert drawing.parts_ns["compute"] == 12_000_000
    assert sum(drawing.parts_ns.values()) == 40_000_000


def test_only_the_evidence_of_this_step_is_kept():
    assert worst().evidence["metric"].rows() == [(210, 80)]


def test_the_shortest_events_are_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timeline, "MOST_EVENTS", 4)
    drawing = worst()
    assert drawing.recorded == 6
    assert drawing.events["name"].to_list() == ["k1", "k2", "outer", "next"]


def test_no_used_step_is_no_timeline():
    (view,) = select_steps(profile(STEPS, KERNELS, OPS), "all").views
    assert worst_step(view.emptied(), {}) is not None  # the steps stay when events are let go
    object.__setattr__(view, "steps", view.steps.clear())
    assert worst_step(view, {}) is None


def test_steps_without_length_are_drawn_without_a_warning():
    (view,) = select_steps(profile([(0, 0), (100, 0), (400, 0)], KERNELS, OPS), "all").views
    drawing = worst_step(view, {})
    assert drawing is not None
    assert drawing.strip.height == 0
