"""The step without the profiler: read from the trace, judged for steadiness, and what savings are then of."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.analysis.device.recording_cost import without_recording
from advisor.engine import check
from advisor.inputs import recorder_block
from advisor.model.missing import Missing
from advisor.present.brief import brief
from advisor.present.source import facts
from tests.strategies_kineto import op, step, text
from tests.tables import metrics_of, on_host, profile, view
from tests.tables import step as row

BLOCK: dict[str, Any] = {
    "format": 1,
    "unprofiled": {"before_ms": 0.05, "after_ms": 0.05, "run_delay_ms": None},
    "profiled": {"step_ms": 0.1, "run_delay_ms": None},
    "marker": "optimizer",
    "ended": "complete",
}
TIMES = {"before_ms": 0.05, "after_ms": 0.05, "profiled_ms": 0.1}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from([*BLOCK, "before_ms"]), inner),
)


def noted(block: object) -> dict[str, Any]:
    return recorder_block.noted(json.dumps(block).encode())


def test_a_block_gives_its_times():
    assert noted(BLOCK) == TIMES


def test_a_block_gives_cores_and_loader_processes():
    job = {"cpus": 8, "loader_workers": 2}
    assert noted(BLOCK | {"job": job}) == TIMES | job


def test_a_block_gives_software_and_settings():
    software = {"versions": {"PyTorch": "2.9.1", "cuDNN": "9.10.2"}, "settings": {"NCCL_ALGO": "Ring"}}
    block = noted(BLOCK | {"software": software})
    assert (block["software"], block["settings"]) == ("PyTorch 2.9.1, cuDNN 9.10.2", "NCCL_ALGO=Ring")


def test_a_block_gives_the_stacks_of_the_process_and_of_its_loader():
    stack = {"samples": 3, "ns": 30_000_000, "line": "train.py:4", "call": "json.dumps", "below": ["json: dumps"]}
    rows = noted(BLOCK | {"stacks": {"main": [stack], "workers": [{"stacks": [stack]}]}})["stacks"]
    untold = dict.fromkeys(("function", "above", "above_call", "of_fetch", "evaluates"))
    more = untold | {"callers": [], "needed": [], "long_ns": 0}
    assert rows == [stack | more | {"of_loader": of_loader} for of_loader in (False, True)]


@pytest.mark.parametrize(
    "changes",
    [
        {"stacks": {"main": [{"samples": -1, "ns": 0}]}},
        {"format": 2},
        {"unprofiled": None},
        {"unprofiled": {"before_ms": "5"}},
        {"unprofiled": {"before_ms": -1.0}},
        {"unprofiled": {"before_ms": 1e300}},
        {"unprofiled": {"before_ms": 1e-9}},
        {"profiled": []},
        {"job": {"cpus": -1}},
        {"software": {"settings": {"NCCL_ALGO": 1}}},
    ],
)
def test_a_malformed_block_gives_none(changes: dict[str, Any]):
    assert noted(BLOCK | changes) == {}


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b'{"format": 1, "pad": "\xff"}'])
def test_a_block_that_is_no_json_gives_none(text: bytes):
    assert recorder_block.noted(text) == {}


def test_a_block_of_more_than_a_recorder_writes_gives_none():
    """Decoded, it would take ten times its length."""
    size = len(msgspec.json.encode(BLOCK))
    assert recorder_block.noted(msgspec.json.encode(BLOCK) + b" " * ((16 << 20) - size)) == TIMES
    assert recorder_block.noted(msgspec.json.encode(BLOCK) + b" " * ((16 << 20) - size + 1)) == {}


def test_a_file_s_own_settings_are_not_repeated():
    """The recorder writes plain values of a closed list; a file may hold others, with a secret in them."""
    settings = {"NCCL_ALGO": "Ring", "HF_TOKEN": "hunter2secret", "NCCL_NET": "postgres://u:p4ss@h/db"}
    settings |= {"PYTORCH_TOKEN": "hunter3secret", "XLA_FLAGS": "hf_abcdefghijKLMNOPQR12345"}
    versions = {"PyTorch": "2.9.1", "x": "<b>", "PASSWORD": "hunter2secret", "JAX": "hunter2secret"}
    known = noted(BLOCK | {"software": {"versions": versions, "settings": settings}})
    assert (known["software"], known["settings"]) == ("PyTorch 2.9.1", "NCCL_ALGO=Ring")


@given(JSON)
def test_whatever_the_block_is_the_trace_is_read(block: object):
    assert isinstance(noted(block), dict)


@pytest.mark.parametrize(
    ("before", "after", "during", "expected", "share"),
    [
        (0.05, 0.07, 0.1, 0.06, 0.4),  # without a device both count
        (0.05, None, 0.1, 0.05, 0.5),
        (0.11, 0.11, 0.1, 0.1, 0.0),  # the profiler makes nothing quicker
    ],
)
def test_the_step_without_the_profiler_is_measured(before, after, during, expected, share):
    values = metrics_of(_view(before, after, during))
    assert values["unprofiled_step_ms"] == pytest.approx(expected)
    assert values["tracing_share"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("before", "after", "during", "code"),
    [
        (None, None, None, "no_unprofiled_steps"),
        (0.05, None, None, "no_unprofiled_steps"),
        (0.05, 0.08, 0.1, "unsteady_steps"),
        (0.16, 0.16, 0.1, "unsteady_steps"),
        (0.05, 0.05, 0.2, "unsteady_steps"),  # longer than the steps that were recorded
        (1e-300, 1e-300, 1e-300, "unsteady_steps"),
    ],
)
def test_where_it_was_not_measured_or_changed_it_is_unknown(before, after, during, code):
    why = metrics_of(_view(before, after, during))["unprofiled_step_ms"]
    assert isinstance(why, Missing)
    assert why.code == code
    assert why.words


def test_a_few_ops_do_not_cost_half_of_a_step():
    why = metrics_of(_view(0.05, 0.05, 0.1, ops=2))["unprofiled_step_ms"]
    assert isinstance(why, Missing)


@pytest.mark.parametrize(
    ("before", "after", "ops", "ratio"),
    [
        (0.005, 0.004, 2, 20.0),  # two ops cost 20 of 95 us at most
        (0.05, 0.05, 10, 1.0),  # ten may cost all of it
        (0.005, 0.01, 2, 1.0),  # the steps changed
        (0.005, None, 2, 1.0),
        (None, None, 2, 1.0),
    ],
)
def test_a_recording_slower_than_its_ops_explain_is_not_the_job_as_it_runs(before, after, ops, ratio):
    assert metrics_of(_view(before, after, 0.1, ops=ops))["recorded_ratio"] == pytest.approx(ratio)


def _view(before, after, during, ops=10):
    host = [on_host("step", 0, 100), *(on_host("op", 10 * i, 10 * i + 5) for i in range(ops))]
    of = view(profile([], host, [row(1, 0, 100, device=None)]))
    of.process.update({"before_ms": before, "after_ms": after, "profiled_ms": during})
    return of


def test_savings_are_of_the_step_without_the_profiler(tmp_path):
    """Steps of 100 us, half of them Python: as recorded by hand, and with half of the time without the profiler."""
    events = [
        event for i in range(1, 7) for event in (step(i, 100 * i, 100), *(op(100 * i + 25 * k, 12) for k in range(4)))
    ]
    reports = {}
    for name, header in (("hand", {}), ("record", {"advisor": BLOCK})):
        (tmp_path / f"{name}.pt.trace.json").write_bytes(text(*events, **header))
        (run,) = check([str(tmp_path / f"{name}.pt.trace.json")]).runs
        reports[name] = run
    hand, record = (next(f.saving for f in reports[name].findings if f.saving) for name in ("hand", "record"))
    assert reports["record"].source.steps.unprofiled_ms == pytest.approx(0.05)
    assert record.high_share == pytest.approx(hand.high_share)
    assert record.high_ms == pytest.approx(hand.high_ms / 2)
    assert "of each 50 µs step" in reports["record"].verdict
    assert "of each recorded step" in next(f for f in reports["record"].findings if f.saving).says


def test_all_times_of_a_report_are_of_one_step(tmp_path):
    """Of 100 us, or of 50 without the profiler."""
    events = [
        event for i in range(1, 7) for event in (step(i, 100 * i, 100), *(op(100 * i + 10 * k, 8) for k in range(9)))
    ]
    path = tmp_path / "record.pt.trace.json"
    path.write_bytes(text(*events, advisor=BLOCK))
    (run,) = check([str(path)]).runs
    known, first = run.accounting, next(f for f in run.findings if f.saving)
    assert known is not None
    assert first.saving is not None
    assert known.step_ms == run.source.steps.length_ms == pytest.approx(0.05)
    assert sum(part.ms for part in known.parts) == pytest.approx(0.05)
    assert sum(part.saved_ms for part in known.parts) == pytest.approx(
        sum(f.saving.high_ms for f in run.findings if f.saving)
    )
    assert sum(first.saving.parts.values()) == pytest.approx(first.saving.high_ms)
    assert first.saving.high_ms / known.step_ms == pytest.approx(first.saving.high_share)
    assert "6 steps, 50 µs without the profiler" in ", ".join(facts(run))
    assert [
        (times.mean_ms, times.unprofiled_ms) for times in (job.steps for job in brief(check([str(path)])).runs)
    ] == [(pytest.approx(0.1), pytest.approx(0.05))]


def test_what_the_profiler_costs_is_gone_from_a_part_and_from_the_step():
    """Half of 100 us is recording 20 ops, 2.5 us each: of 60 us with ten ops, 35 of 50 remain, as 70 of 100."""
    host = [on_host("step", 0, 100), *(on_host("op", 5 * i, 5 * i + 1) for i in range(20))]
    of = view(profile([], host, [row(1, 0, 100, device=None)]))
    assert without_recording(of, 60_000, 10) == 50_000  # 1 us each where it was not measured
    of.process.update({"before_ms": 0.05, "after_ms": 0.05, "profiled_ms": 0.1})
    assert without_recording(of, 60_000, 10) == 60_000  # 70 us: no more than there is
    assert without_recording(of, 60_000, 16) == 40_000


def test_waits_for_a_cpu_are_no_work_of_the_program(tmp_path):
    """Of each 100 us step the thread waits 60 for a CPU: the head says so, and no part of the step without is that."""
    events = [
        event for i in range(1, 7) for event in (step(i, 100 * i, 100), *(op(100 * i + 10 * k, 2) for k in range(9)))
    ]
    path = tmp_path / "busy.pt.trace.json"
    path.write_bytes(text(*events, advisor=BLOCK | {"profiled": {"step_ms": 0.04, "run_delay_ms": 0.06}}))
    (run,) = check([str(path)]).runs
    note = "the machine was busy: other programs kept the CPU from the job for 60 µs of a recorded step"
    assert note in " ".join(note.words for note in run.source.salvaged)
    (shares,) = run.metrics["worker"]
    assert shares["run_delay_share"] == pytest.approx(0.6)
    assert (shares["host_ops_share"], shares["host_work_share"]) == pytest.approx((0.18, 0.82))
    assert run.accounting is not None
    parts = {part.part: part.share for part in run.accounting.parts}
    assert parts == pytest.approx({"operators": 0.18, "between": 0.82}, rel=1e-3)
