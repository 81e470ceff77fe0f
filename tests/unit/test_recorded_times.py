"""The step without the profiler: read from the trace, judged for steadiness, and what savings are then of."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.analysis.device.recording_cost import (
    recorded_ms,
    slowdown,
    unprofiled_ms,
    unprofiled_shares,
    without_recording,
)
from advisor.analysis.device.view import DeviceView
from advisor.engine import check
from advisor.inputs import recorder_block
from advisor.model.clause import Missing
from advisor.present.brief import brief
from advisor.present.source import facts
from tests.strategies_kineto import op, step, text
from tests.tables import kernel, metrics_of, on_host, profile, view
from tests.tables import step as row

BLOCK: dict[str, Any] = {
    "format": 1,
    "unprofiled": {"before_ms": 0.05, "after_ms": 0.05, "run_delay_ms": None},
    "profiled": {"step_ms": 0.1, "run_delay_ms": None},
    "marker": "optimizer",
    "ended": "complete",
}
TIMES = {"before_ms": 0.05, "after_ms": 0.05, "profiled_ms": 0.1, "marker": "optimizer"}
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


def test_a_secret_in_a_stack_or_thread_is_masked():
    """The recorder writes no text of a program; somebody may write a block by hand."""
    hidden = dict.fromkeys(("line", "function", "call", "above"), "api_key=hunter2secret")
    stack = {"samples": 3, "ns": 1, "callers": [hidden], "below": [hidden["line"]], "line": "main.py:3"}
    stack |= {"above": hidden["above"], "evaluates": hidden["call"]}
    threads = {"main": {"run_ns": 1, "wait_ns": 0}, "others": [hidden | {"run_ns": 1}]}
    workers = [{"stacks": [stack]}]
    known = noted(BLOCK | {"stacks": {"main": [stack], "workers": workers, "span_ns": 9, "threads": threads}})
    assert "hunter2" not in json.dumps(known)
    assert [row["line"] for row in known["stacks"]] == ["main.py:3"] * 2
    assert known["threads"][0]["line"] == "api_key=xxxxxxxxxxxxx"


def threads_of(*stacks: dict[str, Any]) -> Any:
    threads = {"main": {"run_ns": 1, "wait_ns": 0}, "others": [{"run_ns": 3, "stacks": stacks}]}
    return noted(BLOCK | {"stacks": {"span_ns": 10, "threads": threads}})["threads"]


PUT = {"line": "feed.py:9", "function": "run", "call": "q.put", "below": ["queue.py: Queue.put"], "samples": 1, "ns": 9}
DRAW = {"line": "feed.py:4", "function": "draw", "call": "rng.choices", "samples": 1, "ns": 3}


def test_a_thread_is_where_it_works_and_not_where_it_waits():
    """Two calls of one line take longer than another line, and less than the wait."""
    others = [{**DRAW, "below": ["random.py: Random.choices"]}, {**DRAW, "line": "feed.py:5", "ns": 5}]
    (at,) = threads_of(PUT, DRAW, *others)
    assert at == {"line": "feed.py:4", "function": "draw", "call": "rng.choices", "share": 0.3}
    assert threads_of({**PUT, "ns": 1, "line": "feed.py:8"}, PUT)[0]["line"] == "feed.py:8"  # it only waits


def test_what_makes_batches_in_threads_of_tensorflow_is_of_a_loader():
    threads = {"main": {"run_ns": 1, "wait_ns": 0}, "batches": [DRAW]}
    known = noted(BLOCK | {"stacks": {"main": [PUT], "span_ns": 10, "threads": threads}})
    assert [(row["line"], row["of_loader"]) for row in known["stacks"]] == [("feed.py:9", False), ("feed.py:4", True)]


@given(JSON)
def test_whatever_the_block_is_the_trace_is_read(block: object):
    assert isinstance(noted(block), dict)


@pytest.mark.parametrize(
    ("before", "after", "during", "expected", "share"),
    [
        (0.05, 0.07, 0.1, 0.06, 0.4),  # without a device both count
        (0.05, None, 0.1, 0.05, 0.5),
        (0.06, 0.067, 0.1, 0.0635, 0.365),  # the steps around differ: by the longer one it is no other job
        (0.11, 0.11, 0.1, 0.1, 0.0),  # the profiler makes nothing quicker
    ],
)
def test_the_step_without_the_profiler_is_measured(before, after, during, expected, share):
    values = metrics_of(_view(before, after, during, ops=2 if before == 0.06 else 10))
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


def test_where_no_recorded_step_is_whole_the_recorder_s_times_are_of_no_use():
    """Warnings are errors in tests: that of a mean of nothing stood on standard error."""
    whole = _view(0.05, 0.05, 0.1)
    of = replace(whole, steps=whole.steps.clear())
    assert isinstance(unprofiled_ms(of), Missing)
    assert slowdown(of) == 1.0


@pytest.mark.parametrize(("delay", "is_known"), [(0.05, True), (0.0499, False), (None, False)])
def test_waits_for_other_programs_make_no_recording_useless(delay, is_known):
    """5 of 100 us are work. 10 times as much may wait unnoted: 50 us of the 100, or of the rest of those noted."""
    of = _view(0.004, 0.004, 0.005)
    of.process["run_delay_ms"] = delay
    value = metrics_of(of)["unprofiled_step_ms"]
    assert value == pytest.approx(0.004) if is_known else isinstance(value, Missing)


def test_a_few_ops_do_not_cost_half_of_a_step_but_beside_a_thread_with_python_s_lock():
    of = _view(0.05, 0.05, 0.1, ops=2)
    assert isinstance(metrics_of(of)["unprofiled_step_ms"], Missing)
    beside = _view(0.05, 0.05, 0.1, ops=2)
    beside.process["threads"] = [{"line": "watch.py:8", "function": "watch", "call": None, "share": 0.9}]
    assert metrics_of(beside)["unprofiled_step_ms"] == pytest.approx(0.05)


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
    """Steps of 100 us, half of them Python: as recorded by hand, and with half of the time without the profiler.

    Where no saving is sure, the headline names the recorded loss.

    Recording the four ops took 3 us each of the 52 outside of them: 40 of 88 remain, and so of 50.
    """
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
    assert [reports[name].of_pace["is_timed_alone"] for name in ("hand", "record")] == [0, 1]
    assert (hand.high_share, record.high_share) == (pytest.approx(0.52), pytest.approx(40 / 88, rel=0.01))
    assert record.high_ms == pytest.approx(50e-3 * record.high_share)
    assert "46 % of each step (23 µs)" in reports["record"].verdict  # and not 52 of the 100 µs recorded
    assert "not recorded (23 µs)" in next(f for f in reports["record"].findings if f.saving).says  # named as told


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


def test_recording_an_op_takes_a_microsecond_where_nobody_timed_the_step_without_it():
    of = view(profile([], [on_host("step", 0, 100)], [row(1, 0, 100, device=None)]))
    assert without_recording(of, 60_000, 10) == 50_000
    of.process.update({"before_ms": 0.07, "after_ms": 0.07, "profiled_ms": 0.1})
    assert without_recording(of, 60_000, 10) == 60_000  # and where they did, all savings are scaled


INPUT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def _in_parts(*nested: dict[str, Any], **noted: Any) -> DeviceView:
    """A step of 100 us: 20 of input, 40 in one op, 40 outside; 70 without the profiler, unless that was not timed."""
    ops = [on_host("input", 0, 20, name=INPUT), on_host("op", 30, 70, name="aten::mm"), *nested]
    of = view(profile([], [on_host("step", 0, 100), *ops], [row(1, 0, 100, device=None)]))
    of.process.update({"before_ms": 0.07, "after_ms": 0.07, "profiled_ms": 0.1} | noted)  # type: ignore[attr-defined]
    return of


@pytest.mark.parametrize(
    ("nested", "lengths"),
    [
        ((), (20, 40, 37)),  # one op is recorded, where it is called: outside of ops
        (tuple(on_host("op", 40 + 2 * i, 41 + 2 * i) for i in range(9)), (20, 40 - 27, 37)),
        (tuple(on_host("python", 40 + i, 41 + i) for i in range(10)), (20, 40 - 6, 37)),  # a fifth of an op
        (tuple(on_host("op", 1 + i, 2 + i) for i in range(16)), (5, 40, 40 - 30 / 17)),  # 30 us in all, 28 in 20
    ],
)
def test_a_part_is_shorter_without_the_profiler_by_what_was_recorded_in_it(nested, lengths):
    """At most 3 us for an op, and 30 in all; what else the step is shorter by is of all parts alike."""
    of = _in_parts(*nested)
    parts = {"input": 20, "operators": 40, "between": 40}
    shares = dict(zip(parts, (length / sum(lengths) for length in lengths), strict=True))
    assert unprofiled_shares(of) == pytest.approx(shares)
    pools = {"input": "input", "host_ops": "operators", "host_work": "between"}
    assert {pool: metrics_of(of)[f"unprofiled_{pool}_part"] for pool in pools} == pytest.approx(
        {pool: 70 * shares[part] / parts[part] for pool, part in pools.items()}
    )


def test_work_on_a_device_takes_as_long_without_the_profiler():
    """Of 100 us the device works for 40 and waits for 60, in which ten ops are recorded: 30 of these, and 40, are left.

    What is recorded while it works costs the step nothing.
    """
    ops = [on_host("op", start, start + 1) for start in (*range(2, 32, 3), *range(42, 92, 5))]
    of = view(profile([kernel(0, 40, 0), kernel(100, 140, 99)], ops, [row(1, 0, 100), row(2, 100, 140)]), "1:2")
    of.process.update({"before_ms": 0.07, "after_ms": 0.07, "profiled_ms": 0.1})  # type: ignore[attr-defined]
    values = metrics_of(of)
    assert values["unprofiled_compute_part"] == pytest.approx(1)
    assert values["unprofiled_launch_gap_part"] == pytest.approx(0.5)


def _stacks(loading: int, others: int) -> list[dict[str, Any]]:
    samples = {"torch/utils/data/dataloader.py": loading, "": others}
    return [
        {"line": "train.py:3", "function": "main", "call": "f", "samples": n, "ns": 10 * n, "of_loader": False}
        | {"above": above, "below": [], "callers": [], "long_ns": 0}
        for above, n in samples.items()
    ]


@pytest.mark.parametrize(
    ("noted", "share"),
    [
        ({"stacks": _stacks(120, 80)}, 0.6),
        ({"stacks": _stacks(60, 40)}, 0.6),
        ({"stacks": _stacks(59, 40)}, 20 / 97),  # too few
        ({"stacks": _stacks(120, 80), "after_ms": 0.5}, 0.6),  # the timed steps differ: of the recorded step
    ],
)
def test_the_wait_for_a_loader_is_sampled_in_steps_without_the_profiler(noted, share):
    """The rest is 40 in ops and 37 outside of them, or 40 and 40 where the step was not timed."""
    of = _in_parts(**noted)
    shares, between = unprofiled_shares(of), 40 if "after_ms" in noted else 37
    rest = 1 - share
    assert shares == pytest.approx(
        {"input": share, "operators": rest * 40 / (40 + between), "between": rest * between / (40 + between)}
    )
    step_us = 100 if "after_ms" in noted else 70
    assert metrics_of(of)["unprofiled_input_part"] == pytest.approx(step_us * share / 20)
    of_compiled = _in_parts(**noted, framework="jax")  # it asks for batches itself
    assert unprofiled_shares(of_compiled).get("input", 0.0) < 0.3


def test_a_sampled_share_is_recorded_time_of_the_parts_that_it_is_in():
    """Without the profiler 37 of 97 are outside of ops, where 40 of 100 were, and 40 of 97 in them."""
    of = _in_parts()
    parts = ("between", "operators")
    assert recorded_ms(of, 37 / 97, *parts) == pytest.approx(0.04)
    assert recorded_ms(of, (37 + 20) / 97, *parts) == pytest.approx(0.04 + 0.02)
    assert recorded_ms(of, 37 / 97, "operators", "between") == pytest.approx(0.04 * 37 / 40)


@pytest.mark.parametrize(("delay_ms", "whole_ms"), [(0.02, None), (0.019, 0.11)])
def test_steps_that_other_programs_make_long_are_not_in_the_mean(delay_ms, whole_ms):
    """Uneven steps add 40 us to one of 70: waits for other programs of 20 us or more are half of that."""
    of = _in_parts(long_ms=0.04, unprofiled_delay_ms=delay_ms)
    value, part = (metrics_of(of)[f"unprofiled_{name}"] for name in ("whole_step_ms", "outliers_part"))
    assert part == (0 if whole_ms is None else 1)
    assert value is None if whole_ms is None else value == pytest.approx(whole_ms)
    assert recorded_ms(of, 37 / 97, "between") == pytest.approx(0.04 * (whole_ms or 0.07) / 0.07)


def test_lines_that_run_in_long_steps_alone_make_these_long():
    apart = {"line": "train.py:9", "call": "g", "ns": 1000, "long_ns": 1000, "samples": 100}
    stacks = _stacks(0, 100)
    stacks.append(stacks[1] | apart)
    of = _in_parts(long_ms=0.04, unprofiled_delay_ms=0.02, stacks=stacks)
    assert metrics_of(of)["unprofiled_whole_step_ms"] == pytest.approx(0.11)


def test_recorded_steps_that_other_programs_make_long_are_not_in_the_mean():
    """Of ten steps of 100 us one takes 200: 10 us more on average, half of them waits for other programs."""
    bounds = [100 * i + 100 * (i > 8) for i in range(12)]
    steps = [row(i, bounds[i], bounds[i + 1], device=None) for i in range(11)]
    host = [on_host("op", start, start + 90) for start in bounds[:-1]]
    for delay_ms, whole_ms in ((0.004, pytest.approx(0.109, rel=0.01)), (0.006, None)):
        of = view(profile([], host, steps), "steady")
        of.process.update(run_delay_ms=delay_ms)  # type: ignore[attr-defined]
        assert metrics_of(of)["whole_step_mean_ms"] == whole_ms


def test_waits_for_a_cpu_are_no_work_of_the_program(tmp_path):
    """Of each 100 us step the thread waits 50 for a CPU: the head says so, and no part of the step without is that."""
    events = [
        event for i in range(1, 7) for event in (step(i, 100 * i, 100), *(op(100 * i + 10 * k, 2) for k in range(9)))
    ]
    path = tmp_path / "busy.pt.trace.json"
    path.write_bytes(text(*events, advisor=BLOCK | {"profiled": {"step_ms": 0.05, "run_delay_ms": 0.05}}))
    (run,) = check([str(path)]).runs
    note = "the machine was busy: other programs kept the CPU from the job for 50 µs of a recorded step"
    assert note in " ".join(note.words for note in run.source.salvaged)
    (shares,) = run.metrics["worker"]
    assert shares["run_delay_share"] == pytest.approx(0.5)
    assert (shares["host_ops_share"], shares["host_work_share"]) == pytest.approx((0.18, 0.82), rel=1e-3)
    assert run.accounting is not None
    parts = {part.part: part.share for part in run.accounting.parts}
    assert parts == pytest.approx({"operators": 0.18, "between": 0.82}, rel=1e-3)
