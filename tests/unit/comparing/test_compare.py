from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from advisor.comparing import compare, mark_new
from advisor.errors import NoRuns, ReadError, UsageError
from advisor.model.comparison import Comparison, FailOn, fail_on
from advisor.model.finding import Evidence, Finding, NotEvaluable, Reach, Saving, Suppressed, Symptom
from advisor.model.reason import Reason, remark
from advisor.model.report import Accounting, Part, Report, Run, Unreadable
from advisor.model.source import Device, LeftOutStep, Source, Steps, Worker
from advisor.model.trials import Gain, Result, Trial, Trials
from advisor.present.comparison import predicted

V100 = Device(worker=0, device=0, name="Tesla V100-SXM2-16GB", model="v100-sxm2-16gb", memory_bytes=None)
A100 = Device(worker=0, device=0, name="NVIDIA A100-SXM4-40GB", model="a100-sxm4-40gb", memory_bytes=None)
STEADY = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100.4, 99.6, 100.3]
Rows = Sequence[Mapping[str, float | int | str | None]]


def reason(words):
    return Reason(code="any", words=words)


def run(times: Sequence[float] = STEADY, *, findings: Sequence[Finding] = (), **given) -> Run:
    """A run of one worker whose steps take `times`, in ms."""
    mean = sum(times) / len(times) if times else None
    steps = Steps(
        timed_by="period",
        marked=given.get("marked", True),
        count=len(times),
        used=len(times),
        step_ms=mean,
        step_mean_ms=mean,
        left_out=given.get("left_out", ()),
    )
    workers = given.get("workers", (0,))
    source = Source(
        path="x",
        format="kineto",
        framework="pytorch",
        world_size=given.get("world_size"),
        workers=tuple(Worker(worker=n, rank=n, name=str(n), file="f") for n in workers),
        devices=(given.get("device", V100),),
        steps=steps,
        salvaged=(),
        lacks={},
    )
    step = [{"worker": 0, "device": 0, "step": n, "step_ms": time} for n, time in enumerate(times)]
    return Run(
        name=given.get("name", "job"),
        verdict="",
        source=source,
        accounting=accounting(given.get("parts", {"compute": 1.0})),
        findings=tuple(findings),
        not_evaluable=given.get("not_evaluable", ()),
        passed=given.get("passed", ()),
        not_applicable=(),
        suppressed=given.get("suppressed", ()),
        metrics={
            "step": tuple(given.get("step", step)),
            "launch": tuple(given.get("launch", ())),
            "op": tuple(given.get("op", ())),
            "phase": tuple(given.get("phase", ())),
            "device": tuple(given.get("device_row", ())),
            "run": (given.get("row", {"step_mean_ms": mean}),),
        },
    )


def accounting(shares: Mapping[str, float]) -> Accounting | None:
    parts = tuple(
        Part(part=code, is_useful=code == "compute", ms=100 * share, share=share) for code, share in shares.items()
    )
    return Accounting(step_ms=100.0, parts=parts) if parts else None


def says(note: Reason) -> str:
    return note.words


def held(base: Run | Sequence[Run], head: Run | Sequence[Run], trials: Trials | None = None) -> Comparison:
    sides = [[side] if isinstance(side, Run) else list(side) for side in (base, head)]
    return compare(*sides, advisor_version="0", trials=trials)


def finding(rule: str, severity="medium", high_share: float = 0.1, symptoms: Sequence[str] = ()) -> Finding:
    saving = Saving(low_ms=0, high_ms=100 * high_share, low_share=0, high_share=high_share, of="x", method="")
    return Finding(
        key=rule,
        rule=rule,
        title=rule,
        severity=severity,
        confidence="high",
        saving=saving,
        scope=Reach(workers=(0,), steps=()),
        says="",
        why="",
        evidence=(),
        where=(),
        fixes=(),
        symptoms=tuple(Symptom(rule=s, title=s, says="") for s in symptoms),
        explains=(),
        docs="",
    )


def promised(rule: str, low: float, high: float, of: str = "x") -> Finding:
    """A finding whose fix saves these shares of the step."""
    saving = Saving(low_ms=100 * low, high_ms=100 * high, low_share=low, high_share=high, of=of, method="")
    return finding(rule).model_copy(update={"saving": saving})


def times(by: float) -> list[float]:
    return [time * by for time in STEADY]


# ------------------------------------------------------------------------------------------ the verdict


@pytest.mark.parametrize(
    ("by", "verdict", "code"),
    [(1.1, "slower", 1), (0.9, "faster", 0), (1.01, "same", 0), (0.99, "same", 0), (1.0, "same", 0)],
)
def test_the_verdict_and_the_exit_code(by: float, verdict: str, code: int):
    found = held(run(), run(times(by)))
    assert (found.verdict, found.obstacle, found.exit_code()) == (verdict, None, code)
    assert found.change is not None
    assert found.change.ratio == pytest.approx(by)


def test_noise_is_no_verdict():
    wild = [60.0, 140.0, 75.0, 125.0, 90.0, 110.0, 65.0, 135.0, 80.0, 120.0]
    found = held(run(wild), run([t * 1.04 for t in wild]))
    assert (found.verdict, found.obstacle) == ("inconclusive", "noise")
    assert found.exit_code() == 0
    assert found.exit_code(strict=True) == 4


def test_two_steps_are_too_few_even_against_themselves():
    for other in ([100.0, 101.0], [300.0, 301.0]):
        found = held(run([100.0, 101.0]), run(other))
        assert (found.verdict, found.obstacle) == ("inconclusive", "few-steps")


def test_a_run_against_itself_is_the_same_however_noisy():
    wild = [60.0, 140.0, 75.0, 125.0, 90.0, 300.0]
    assert held(run(wild), run(wild)).verdict == "same"


def test_the_same_runs_in_another_order_are_the_same():
    wild = [run([60.0, 140.0, 75.0, 125.0, 90.0, 300.0]), run([50.0, 190.0, 70.0, 150.0, 80.0, 200.0])]
    assert held(wild, wild[::-1]).verdict == "same"


@pytest.mark.parametrize(
    ("changed", "obstacle"),
    [
        ({"device": A100}, "hardware"),
        ({"world_size": 8}, "world-size"),
        ({"workers": (0, 1)}, "world-size"),
        ({"marked": False}, "no-steps"),
        ({"times": ()}, "no-steps"),
    ],
)
def test_what_cannot_be_compared(changed, obstacle):
    found = held(run(), run(changed.pop("times", times(2.0)), **changed))
    assert (found.verdict, found.obstacle) == ("inconclusive", obstacle)
    assert found.cause is None


def test_a_recording_without_a_whole_step_is_not_told_to_mark_its_steps():
    assert "record it again" in held(run(), run(())).reason.words
    assert "prof.step()" in held(run(), run(marked=False)).reason.words


def test_one_model_under_two_names_is_the_same_hardware():
    renamed = V100.model_copy(update={"name": "Tesla V100"})
    assert held(run(), run(device=renamed)).verdict == "same"


def test_outliers_count_and_compiling_steps_do_not():
    left_out = (
        LeftOutStep(worker=0, device=0, step=20, why=Reason(code="outlier", words=""), step_ms=500.0),
        LeftOutStep(worker=0, device=0, step=21, why=Reason(code="compiled", words=""), step_ms=900.0),
        LeftOutStep(worker=0, device=0, step=22, why=Reason(code="no_end", words=""), step_ms=None),
    )
    found = held(run(left_out=left_out), run())
    assert found.base.series[0].steps_ms == (*STEADY, 500.0)


def test_a_step_is_as_long_as_its_slowest_rank_of_those_recorded_on_both_sides():
    def rows(*ranks: tuple[int, float]) -> Rows:
        return [{"worker": w, "device": 0, "step": n, "step_ms": t} for w, t in ranks for n in range(3)]

    base = run(world_size=8, workers=(0, 1, 2), step=rows((0, 10.0), (1, 12.0), (2, 50.0)))
    head = run(world_size=8, workers=(0, 1), step=rows((0, 10.0), (1, 12.0)))
    found = held(base, head)
    assert found.base.median_ms == found.head.median_ms == 12.0
    assert any("2 ranks" in note for note in map(says, found.notes))


def test_the_breakdown_is_of_a_rank_whose_steps_count():
    """Worker 2 sets the base's pace, but the head lacks it: the slower of the other two stands for the base."""
    rows = tuple({"worker": w, "device": 0, "step_mean_ms": t} for w, t in ((0, 10.0), (1, 12.0), (2, 50.0)))
    parts = tuple(
        {"worker": w, "device": 0, "part": part, "share": share}
        for w, of_input in ((0, 0.0), (1, 0.25), (2, 0.9))
        for part, share in (("compute", 1 - of_input), ("input", of_input))
    )
    base = run([50.0] * 3, world_size=8, workers=(0, 1, 2), parts={"compute": 0.1, "input": 0.9})
    steps = base.source.steps.model_copy(update={"worker": 2})
    source = base.source.model_copy(update={"steps": steps})
    base = base.model_copy(update={"source": source, "metrics": {**base.metrics, "device": rows, "accounting": parts}})
    found = held(base, run([12.0] * 3, world_size=8, workers=(0, 1)))
    assert {shift.part: shift.base_ms for shift in found.breakdown} == {"compute": 37.5, "input": 12.5}


def test_what_recording_costs_may_be_the_whole_change():
    costly = {"step_mean_ms": 110.0, "profiler_share": 0.0, "tracing_share": 0.1}
    found = held(run(), run(times(1.1), row=costly))
    assert (found.verdict, found.obstacle) == ("inconclusive", "profiler")
    assert held(run(), run(times(1.3), row=costly)).verdict == "slower"
    assert held(run(row=costly), run(times(1.1), row=costly)).verdict == "slower"
    assert held(run(row=costly), run(times(0.95))).obstacle == "profiler"


def test_several_runs_that_stray_do_not_make_one_of_them_slower():
    base = [run(times(level), name=str(n)) for n, level in enumerate((0.9, 1.0, 1.1))]
    head = [run(times(level), name=str(n)) for n, level in enumerate((0.95, 1.06, 1.12))]
    assert held(base, head).verdict == "inconclusive"
    assert held(base[1], head[1]).verdict == "slower"
    assert held(base, head).base.steps == 36


def test_ten_runs_that_stray_raise_the_smallest_change_that_counts():
    base = [run(times(1.0 if n % 2 else 1.08), name=str(n)) for n in range(10)]
    found = held(base, [run(times(1.09), name=str(n)) for n in range(10)])
    assert found.change is not None
    assert found.change.least > 0.07
    assert found.verdict != "slower"


def test_no_run_is_an_error():
    with pytest.raises(NoRuns, match="head: no run"):
        compare([run()], [], advisor_version="0")


def test_all_that_keeps_sides_from_being_compared_is_said():
    found = held(run(world_size=8), run(device=A100))
    assert found.obstacle == "hardware"
    assert "different hardware: " in found.reason.words
    assert "different world size: 8 against 1 ranks" in [caution.words for caution in found.cautions]


def test_a_recording_that_stands_on_both_sides_is_named():
    wild = [60.0, 140.0, 75.0, 125.0, 90.0, 110.0, 65.0, 135.0, 80.0, 120.0]
    shared, other = run(wild, name="shared"), run([t * 1.04 for t in wild], name="other")
    found = held([shared], [shared, other])
    assert (found.verdict, found.one_recording) == ("inconclusive", False)
    assert "a recording is on both sides (shared)" in found.reason.words
    assert held(shared, shared).one_recording


# ------------------------------------------------------------------------------------------ what fails


def test_fail_on():
    assert fail_on(["slower"]) == FailOn(slower=0.0)
    assert fail_on(["slower:5"]) == fail_on(["slower:5%"]) == FailOn(slower=0.05)
    assert fail_on(["new-high"]) == FailOn(slower=None, new_high=True)
    assert fail_on(["never"]) == FailOn(slower=None)
    for contradiction in (["new-high", "never"], ["never", "slower"]):
        with pytest.raises(UsageError, match="--fail-on never: contradicts"):
            fail_on(contradiction)
    for wrong in ("slow", "slower:", "slower:x", "slower:-1", "slower:nan", "new-high:3"):
        with pytest.raises(UsageError, match="--fail-on"):
            fail_on([wrong])


def test_a_slow_down_below_the_limit_passes():
    found = held(run(), run(times(1.1)))
    assert found.exit_code(FailOn(slower=0.15)) == 0
    assert found.exit_code(FailOn(slower=0.05)) == 1
    assert found.exit_code(FailOn(slower=None)) == 0


def test_new_high_fails_and_only_that():
    new_high = FailOn(slower=None, new_high=True)
    grave, mild = finding("a", "high"), finding("a", "medium")
    assert held(run(passed=("a",)), run(findings=[grave])).exit_code(new_high) == 1
    assert held(run(findings=[mild]), run(findings=[grave])).exit_code(new_high) == 1
    assert held(run(findings=[grave]), run(findings=[grave])).exit_code(new_high) == 0
    assert held(run(passed=("a",)), run(findings=[mild])).exit_code(new_high) == 0
    unknown = NotEvaluable(rule="a", title="a", missing={"m": reason("why")})
    untold = run(not_evaluable=(unknown,), passed=("b",))
    assert held(untold, run(findings=[grave])).exit_code(new_high) == 0


def test_a_side_that_is_broken_never_passes():
    """As `check` has it: what could not be read, or judged, is no good news."""
    unknown = NotEvaluable(rule="a", title="a", missing={"m": reason("cut off")})
    dumb = run((), not_evaluable=(unknown,))
    never, new_high = FailOn(slower=None), FailOn(slower=None, new_high=True)
    assert [held(run(), dumb).exit_code(wanted) for wanted in (FailOn(), new_high, never)] == [3, 3, 0]
    assert held(run(), run(not_evaluable=(unknown,))).exit_code() == 0  # the step times tell
    assert held(run(), run(not_evaluable=(unknown,))).exit_code(new_high) == 3
    lost = Unreadable(path="rank7.json", why="empty", others=("rank8.json",))
    found = compare([run()], [run()], advisor_version="0", unreadable=((), (lost,)))
    assert (found.verdict, found.head.unreadable, found.exit_code()) == ("same", 2, 3)
    assert "could not read rank7.json of the runs after the change: empty (the same for 1 more)" in map(
        says, found.notes
    )
    assert compare([run()], [run(times(1.2))], advisor_version="0", unreadable=((), (lost,))).exit_code() == 1


def test_runs_of_one_side_on_different_hardware_are_no_sample():
    mixed = [run(name="a"), run(name="b", device=A100)]
    found = held(mixed, mixed)
    assert (found.verdict, found.obstacle) == ("inconclusive", "hardware")
    assert "within a side" in found.reason.words
    sizes = [run(name="a", world_size=8), run(name="b", world_size=16)]
    assert held(sizes, sizes).obstacle == "world-size"


# ------------------------------------------------------------------------------------------ why


def test_the_category_that_moved_is_the_cause():
    found = held(run(parts={"compute": 0.9, "input": 0.1}), run(times(1.5), parts={"compute": 0.6, "input": 0.4}))
    assert found.verdict == "slower"
    assert found.cause is not None
    assert found.cause.part == "input"
    assert found.cause.change_ms == pytest.approx(150.0 * 0.4 - 100.0 * 0.1, rel=0.01)


def kernel(name: str, calls_per_step: float, mean_us: float, sd_us: float | None = 1.0, grid: int = 8):
    return {
        "kind": "kernel",
        "name": name,
        "grid": grid,
        "block": 128,
        "bytes": None,
        "calls": int(calls_per_step * 12),
        "calls_per_step": calls_per_step,
        "ms_per_step": calls_per_step * mean_us / 1e3,
        "mean_us": mean_us,
        "sd_us": sd_us,
    }


def test_kernels_that_appear_vanish_change_count_or_get_slower():
    base = [kernel("gone", 10, 100), kernel("twice", 10, 100), kernel("slow", 10, 100), kernel("calm", 10, 100)]
    base += [kernel("noisy", 10, 100, 90.0), kernel("tiny", 1, 1)]
    head = [kernel("here", 10, 100), kernel("twice", 20, 100), kernel("slow", 10, 150), kernel("calm", 10, 101)]
    head += [kernel("noisy", 10, 110, 90.0), kernel("tiny", 1, 2)]
    found = held(run(launch=base), run(launch=head))
    assert {w.name: w.status for w in found.work} == {
        "gone": "vanished",
        "here": "appeared",
        "twice": "count",
        "slow": "slower",
    }
    slow = next(w for w in found.work if w.name == "slow")
    assert slow.change_ms == pytest.approx(0.5)
    assert slow.p is not None
    assert slow.p < 1e-6
    assert slow.size == "8 \N{MULTIPLICATION SIGN} 128"


def test_sizes_of_a_name_on_one_side_only_are_told_as_one():
    base = [kernel("gone", 10, 100, grid=1), kernel("gone", 10, 200, grid=2), kernel("resized", 10, 100, grid=1)]
    found = held(run(launch=base), run(launch=[kernel("resized", 10, 100, grid=4)]))
    assert [(w.name, w.status, w.size) for w in found.work] == [
        ("gone", "vanished", None),
        ("resized", "vanished", "1 \N{MULTIPLICATION SIGN} 128"),
        ("resized", "appeared", "4 \N{MULTIPLICATION SIGN} 128"),
    ]
    assert found.work[0].base is not None
    assert found.work[0].base.mean_us == pytest.approx(150.0)


def test_where_a_table_was_cut_nothing_vanishes():
    rows = [kernel(f"k{n}", 1, 10.0) for n in range(2000)]
    assert held(run(launch=rows), run(launch=[kernel("new", 10, 500)])).work == ()


def test_work_of_no_known_kind_is_refused_in_one_line():
    other = {**kernel("new", 10, 500), "kind": "a" * 50}
    with pytest.raises(ReadError, match=r"metrics that no check writes: work: must be .*; check the profile again"):
        held(run(launch=[kernel("k", 10, 100)]), run(launch=[other]))


def test_a_report_without_the_tables_says_so():
    old = run()
    old = old.model_copy(update={"metrics": {"step": old.metrics["step"]}})
    found = held(old, run(launch=[kernel("k", 10, 100)]))
    assert found.work == ()
    assert any("lacks the tables" in note for note in map(says, found.notes))


def tree(*frames: tuple[int | None, str, float, float]) -> Rows:
    return [
        {"id": n, "parent": parent, "name": name, "kind": "module", "total_ms": total, "self_ms": own}
        for n, (parent, name, total, own) in enumerate(frames)
    ]


def with_tree(rows: Rows) -> Run:
    one = run()
    return one.model_copy(update={"metrics": {**one.metrics, "call_tree": tuple(rows)}})


def test_modules_are_matched_along_their_paths():
    base = with_tree(tree((None, "Net", 10, 1), (0, "Conv", 6, 6), (0, "Norm", 3, 0), (2, "Conv", 3, 3)))
    head = with_tree(tree((None, "Net", 14, 1), (0, "Conv", 9, 9), (0, "Head", 4, 4)))
    frames = held(base, head).frames
    assert [(f.parent, f.name, f.base_ms, f.head_ms, f.head_self_ms) for f in frames] == [
        (None, "Net", 10, 14, 1),
        (0, "Conv", 6, 9, 9),
        (0, "Head", 0, 4, 4),
        (0, "Norm", 3, 0, 0),
        (3, "Conv", 3, 0, 0),
    ]
    assert frames[1].change_ms == 3
    twice = held([base, with_tree(tree((None, "Net", 20, 2)))], head).frames
    assert (twice[0].base_ms, twice[0].base_self_ms) == (15, 1.5)


def test_without_a_tree_on_both_sides_there_is_none():
    assert held(with_tree(tree((None, "Net", 10, 1))), run()).frames == ()


def test_a_tree_that_is_none_is_drawn_as_far_as_it_is():
    loose = [{"id": 0, "parent": 7, "name": "lost", "kind": "op", "total_ms": 1.0, "self_ms": 1.0}]
    cut = [{"id": 1, "parent": None, "name": None, "kind": "op", "total_ms": 2.0, "self_ms": None}]
    assert [(f.name, f.base_ms, f.base_self_ms) for f in held(*[with_tree([*loose, *cut])] * 2).frames] == [
        (None, 2, 0)
    ]


def op(
    name: str, shapes: str | None, mean_us: float = 100.0, types: str | None = None
) -> Mapping[str, float | int | str | None]:
    spent = {"calls": 12, "calls_per_step": 1.0, "mean_us": mean_us, "sd_us": 1.0}
    return {"name": name, "shapes": shapes, "types": types, **spent}


def test_a_step_that_does_other_work_is_cautioned_of():
    kept, mm, wide = op("aten::add_", "[[64]]"), op("aten::mm", "[[32,1024]]"), op("aten::mm", "[[64,1024]]", 200)
    (caution,) = held(run(op=[kept, mm]), run(times(2), op=[kept, wide])).cautions
    assert caution == remark("other_sizes", ops=1, op="aten::mm", base="[[32,1024]]", head="[[64,1024]]")
    assert held(run(op=[kept, mm]), run(op=[kept, mm, wide])).cautions == ()
    unsized = [op("aten::mm", None)]
    assert held(run(op=unsized), run(op=unsized)).cautions == ()
    small = op("aten::mm", "[[32,1024]]", 5)
    assert held(run(op=[kept, small]), run(op=[kept, wide])).cautions == ()


def test_ops_in_other_types_are_other_work():
    """Of 3 ms in ops with types, the product's 1 is in fp64, then in fp32; beside them an op that is in both."""
    base = [op("aten::mm", "[[8,8]]", 1000, types="fp64"), op("aten::add_", "[[64]]", 2000, types="fp32")]
    head = [op("aten::mm", "[[8,8]]", 400, types="fp32"), op("aten::add_", "[[64]]", 2000, types="fp32")]
    found = held(run(op=base), run(times(0.8), op=head))
    assert found.cautions == (remark("other_types", ops=1, op="aten::mm", base="fp64", head="fp32"),)
    assert [(w.name, w.status, w.size) for w in found.work] == [
        ("aten::mm", "faster", "fp64 \N{RIGHTWARDS ARROW} fp32 [[8,8]]"),
    ]
    both = [*head, op("aten::mm", "[[8,8]]", 400, types="fp64")]  # as under autocast, which leaves some products alone
    found = held(run(op=base), run(times(0.8), op=both))
    assert (found.cautions, [w.size for w in found.work]) == ((), ["[[8,8]]"])
    untyped = [row | {"types": None} for row in head]
    assert held(run(op=base), run(times(0.8), op=untyped)).cautions == ()


def changed(one: Run, **source: object) -> Run:
    return one.model_copy(update={"source": one.source.model_copy(update=source)})


def test_kernels_hidden_in_graphs_are_not_gone():
    graphs = changed(
        run(launch=[kernel("CUDA graph 1", 1, 1000)]), lacks={"device_ops.name": reason("graphs as a whole")}
    )
    kernels = run(launch=[kernel("k", 10, 100)], op=[op("aten::mm", None, 1000)])
    for found in (held(graphs, kernels), held(kernels, graphs)):
        assert [one.work for one in found.work] == ["op"]
        assert any("could not tell" in note and "graphs as a whole" in note for note in map(says, found.notes))


def test_other_settings_of_the_recorder_are_said():
    plainly = changed(run(), environment={"recorded with": "record_shapes"})
    stacks = changed(run(), environment={"recorded with": "record_shapes, with_stack, profile_memory"})
    assert "only the runs after the change were recorded with profile_memory and with_stack" in map(
        says, held(plainly, stacks).notes
    )
    assert held(stacks, stacks).notes == ()


def test_a_finding_whose_own_numbers_did_not_move_is_as_before():
    """62 ms of kernels in a step of 178 and of 125 ms: what 16 bits would save moved with what else waits."""

    def amp(share: float, step_ms: float, high_ms: float) -> Run:
        numbers = (("thirty_two_bit_share", share, "share"), ("sixteen_bit_gain_ms", high_ms, "ms"))
        shown = tuple(Evidence(metric=m, value=v, unit=u, meaning="") for m, v, u in numbers)
        saved = finding("amp", "high", high_share=high_ms / 100).model_copy(update={"evidence": shown})
        return run([step_ms] * 6, findings=[saved])

    assert [f.status for f in held(amp(0.495, 125, 40), amp(0.347, 178, 49)).findings] == ["same"]
    assert [f.status for f in held(amp(0.495, 125, 40), amp(0.495, 178, 49)).findings] == ["same"]
    assert [f.status for f in held(amp(0.495, 125, 40), amp(0.7, 178, 80)).findings] == ["worse"]


def test_a_finding_is_no_worse_because_another_took_its_saving_on_the_base():
    """Copies of 1.9 and 2.9 ms: on the base all but 0.4 ms of their saving is another finding's."""

    def copies(length: float, step_ms: float, high_ms: float) -> Run:
        numbers = (("pageable_copy_share", length / step_ms, "share"), ("pageable_copy_exposed_ms", length, "ms"))
        shown = tuple(Evidence(metric=m, value=v, unit=u, meaning="") for m, v, u in numbers)
        saved = finding("copies", high_share=high_ms / 100).model_copy(update={"evidence": shown})
        return run([step_ms] * 6, findings=[saved])

    base = copies(1.9, 176, 0.36)
    assert [f.status for f in held(base, copies(2.9, 125, 2.9)).findings] == ["same"]
    assert [f.status for f in held(base, copies(12, 125, 12)).findings] == ["worse"]


# ------------------------------------------------------------------------------------------ sides without steps


def test_without_steps_on_both_sides_nothing_is_told_per_step():
    base = run(launch=[kernel("a", 10, 100)], findings=[finding("wait", high_share=0.1)])
    head = run([7000.0], marked=False, launch=[kernel("b", 10, 100)], findings=[finding("wait", high_share=0.9)])
    found = held(base, head)
    assert (found.base.per, found.head.per, found.per_step) == ("step", "recording", False)
    assert (found.work, found.frames) == ((), ())
    assert [f.status for f in found.findings] == ["same"]
    assert any(note.startswith("no steps after the change") for note in map(says, found.notes))
    assert not held(head, head).per_step


def test_a_window_without_steps_does_not_tell_what_is_gone():
    window = run([7000.0], marked=False, passed=("stall",))
    (change,) = held(run(findings=[finding("stall")]), window).findings
    assert (change.status, change.why is not None and "no steps are marked after the change" in change.why.words) == (
        "unknown",
        True,
    )
    assert [f.status for f in held(window, run(findings=[finding("stall")])).findings] == ["new"]


@pytest.mark.parametrize("flipped", [False, True])
def test_a_side_that_was_not_measured_is_no_zero(flipped):
    broken = run((), parts={}, findings=[finding("few")])
    whole = run(launch=[kernel("k", 10, 100)], findings=[finding("slow")], passed=("few",))
    found = held(*((whole, broken) if flipped else (broken, whole)))
    step = f"the step {'after' if flipped else 'before'} the change"
    assert (found.breakdown, found.work, found.frames) == ((), (), ())
    assert {(f.status, f.why.words) for f in found.findings} == {("unknown", f"{step} was not measured")}
    assert any(note.startswith(f"not measured: {step};") for note in map(says, found.notes))


# ------------------------------------------------------------------------------------------ findings


def test_what_became_of_findings():
    unknown = NotEvaluable(rule="lost", title="lost", missing={"m": reason("no shapes")})
    quiet = Suppressed(rule="quiet", title="quiet", severity="low", reason="known", until=None)
    base = run(
        findings=[
            finding("same"),
            finding("worse"),
            finding("better", high_share=0.3),
            finding("fixed", symptoms=["seen"]),
            finding("lost"),
            finding("quiet"),
            finding("unruled"),
        ],
        passed=("new",),
    )
    head = run(
        findings=[finding("same", high_share=0.105), finding("worse", "high"), finding("better"), finding("new")],
        passed=("fixed", "seen"),
        not_evaluable=(unknown,),
        suppressed=(quiet,),
    )
    found = {f.key: (f.status, f.why and f.why.words) for f in held(base, head).findings}
    assert found == {
        "new": ("new", None),
        "worse": ("worse", None),
        "fixed": ("gone", None),
        "seen": ("gone", None),
        "better": ("better", None),
        "same": ("same", None),
        "lost": ("unknown", "unknown after the change: no shapes"),
        "quiet": ("unknown", "suppressed after the change"),
        "unruled": ("unknown", "checked without this rule after the change"),
    }


def test_a_finding_that_saves_less_time_is_better_even_if_it_is_more_of_a_shorter_step():
    base, head = run(findings=[finding("f", "medium", 0.3)]), run(findings=[finding("f", "high", 0.1)])
    assert [f.status for f in held(base, head).findings] == ["better"]


def test_a_symptom_moves_as_its_cause_does_and_else_as_its_severity():
    def of_cause(high_share: float, severity: str) -> Finding:
        cause = finding("cause", high_share=high_share, symptoms=["symptom"])
        return cause.model_copy(update={"symptoms": (cause.symptoms[0].model_copy(update={"severity": severity}),)})

    base = run(findings=[of_cause(0.3, "high")])
    less = held(base, run(findings=[of_cause(0.1, "high")]))
    alone = held(base, run(findings=[finding("symptom", "low")], passed=("cause",)))
    as_before = held(base, run(findings=[of_cause(0.3, "high")]))
    assert {f.key: f.status for f in less.findings} == {"cause": "better", "symptom": "better"}
    assert {f.key: f.status for f in alone.findings} == {"cause": "gone", "symptom": "better"}
    assert {f.key: f.status for f in as_before.findings} == {"cause": "same", "symptom": "same"}


def test_a_finding_is_as_before_where_only_the_rest_of_the_step_shrank():
    same_ms = finding("f").model_copy(
        update={"saving": Saving(low_ms=0, high_ms=10, low_share=0, high_share=0.2, of="x", method="")}
    )
    assert [f.status for f in held(run(findings=[finding("f")]), run(times(0.5), findings=[same_ms])).findings] == [
        "same"
    ]


def test_what_the_reader_noted_is_told_as_it_is():
    noted = run()
    notes = tuple(map(Reason.model_validate, ("the middle export of three was read", "2 events left out")))
    source = noted.source.model_copy(update={"salvaged": notes})
    found = held(run(), noted.model_copy(update={"source": source}))
    assert "a run after the change was read with a note (the middle export of three was read) and 1 more" in map(
        says, found.notes
    )


def test_of_several_runs_at_least_half_must_have_a_finding():
    runs = [run(findings=[finding("often"), finding("once")]), run(findings=[finding("often")]), run()]
    assert [f.key for f in held(runs, run(passed=("often", "once"))).findings] == ["often"]


def test_a_baseline_marks_what_is_new():
    unknown = NotEvaluable(rule="unknown", title="u", missing={"m": reason("why")})
    old = Report(
        advisor_version="0",
        runs=(run(findings=[finding("old", symptoms=["seen"])], passed=("new",), not_evaluable=(unknown,)),),
    )
    now = run(name="elsewhere", findings=[finding(rule) for rule in ("old", "seen", "new", "unknown")])
    marked = mark_new(Report(advisor_version="0", runs=(now,)), old)
    assert [f.new for f in marked.runs[0].findings] == [False, False, True, None]


def test_of_several_runs_the_baseline_of_the_same_name_counts():
    old = Report(advisor_version="0", runs=(run(name="a", passed=("x",)), run(name="b", findings=[finding("x")])))
    new = Report(advisor_version="0", runs=tuple(run(name=n, findings=[finding("x")]) for n in ("a", "b", "c")))
    assert [r.findings[0].new for r in mark_new(new, old).runs] == [True, False, None]


# ------------------------------------------------------------------------------------------ predictions


def test_what_a_fix_promised_stands_beside_what_the_step_got_shorter_by():
    (change,) = held(run(findings=[promised("loader", 0.4, 0.45)]), run(times(0.63), passed=("loader",))).findings
    known = change.prediction
    assert known is not None
    assert change.status == "gone"
    assert (known.low_ms, known.high_ms, known.measured_ms) == pytest.approx((40, 45, 37), abs=0.1)


def test_findings_that_go_at_once_share_one_measurement():
    both = [promised("loader", 0.2, 0.2), promised("copies", 0.1, 0.1)]
    changes = held(run(findings=both), run(times(0.75), passed=("loader", "copies"))).findings
    known = [change.prediction for change in changes if change.prediction]
    assert [(of.findings, round(of.high_ms)) for of in known] == [(2, 30), (2, 30)]


def tried(*trials: tuple[str | None, float, Result]) -> Trials:
    """Trials by rule, ratio and result, each ratio to 2 % of the step; `together` for all that helped."""
    each = [
        Trial(
            name=rule or "optimizer",
            rule=None if rule == "together" else rule,
            uses=(),
            result=result,
            gain=Gain(ratio=ratio, low=ratio - 0.02, high=ratio + 0.02, pairs=12),
        )
        for rule, ratio, result in trials
    ]
    return Trials(advisor_version="0", program="train.py", within=0.05, trials=tuple(each))


@pytest.mark.parametrize(
    ("trials", "effect"),
    [
        (tried(("loader", 0.6, "faster")), (38, 42, 1)),
        (tried(("loader", 0.6, "faster"), ("copies", 0.9, "faster"), ("together", 0.5, "faster")), (48, 52, 2)),
        (tried(("loader", 1.3, "slower")), (-32, -28, 1)),
        (tried(("loader", 0.6, "unclear")), None),
        (tried(("kernels", 0.6, "faster")), None),  # a finding that is not gone
        (tried((None, 0.6, "faster")), None),  # a patch without a finding
        (tried((None, 0.9, "faster"), ("loader", 0.6, "faster"), ("together", 0.5, "faster")), (38, 42, 1)),
        (None, None),
    ],
)
def test_what_a_trial_measured_stands_beside_what_was_predicted(trials: Trials | None, effect):
    """Steps of 100 ms, 63 ms with the fixes of both findings: the trial of the most of them counts."""
    base = run(findings=[promised("loader", 0.3, 0.3), promised("copies", 0.1, 0.1), finding("kernels")])
    head = run(times(0.63), findings=[finding("kernels")], passed=("loader", "copies"))
    known = next(change.prediction for change in held(base, head, trials).findings if change.prediction)
    assert (known.findings, round(known.high_ms), round(known.measured_ms)) == (2, 40, 37)
    if effect is None:
        assert known.trial is None
    else:
        assert known.trial is not None
        assert (round(known.trial.low_ms), round(known.trial.high_ms), known.trial.findings) == effect


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.6, "Predicted 40\N{EN DASH}45 ms; tried 38\N{EN DASH}42 ms; measured 37 ms."),
        (1.0, "; tried no shorter step;"),
    ],
)
def test_predicted_tried_and_measured_are_one_sentence(ratio: float, words: str):
    base, head = run(findings=[promised("loader", 0.4, 0.45)]), run(times(0.63), passed=("loader",))
    comparison = held(base, head, tried(("loader", ratio, "same")))
    assert words in predicted(comparison.findings[0], comparison)


def launching(step_ms: float, share: float) -> tuple[dict[str, object], ...]:
    return ({"worker": 0, "launch_gap_share": share, "step_mean_ms": step_ms},)


def test_a_finding_whose_time_is_still_there_is_hidden_and_not_gone():
    """Launch gaps of 10 ms in steps of 100 ms, then in steps of 300 ms: 3 % are below the rule's limit."""
    gaps = Evidence(metric="launch_gap_share", value=0.1, unit="share", meaning="Part of the step", limit=0.05)
    before = promised("launch-bound", 0.05, 0.1, "launch_gap").model_copy(update={"evidence": (gaps,)})
    base, head = run(findings=[before]), run(times(3), findings=[finding("loader")], passed=("launch-bound",))
    base.metrics["worker"], head.metrics["worker"] = launching(100, 0.1), launching(300, 0.1 / 3)
    statuses = {change.key: change for change in held(base, head).findings}
    assert statuses["launch-bound"].status == "hidden"
    assert statuses["launch-bound"].why is not None
    assert statuses["launch-bound"].why.code == "dwarfed"
    back = {change.key: change for change in held(head, base).findings}
    assert back["launch-bound"].status == "uncovered"
    assert back["launch-bound"].why is not None
    assert back["launch-bound"].why.code == "dominant"
    head.metrics["worker"] = launching(300, 0.001)
    changes = {change.key: change.status for change in held(base, head).findings}
    assert changes["launch-bound"] == "gone"
    assert {change.key: change.status for change in held(head, base).findings}["launch-bound"] == "new"


@pytest.mark.parametrize(
    ("loops", "small", "status"),
    [(0.002, 0.62, "uncovered"), (0.002, 0.4, "new"), (0.09, 0.62, "new")],
)
def test_a_finding_was_hidden_only_if_its_other_numbers_allowed_it_too(loops: float, small: float, status: str):
    """Launch gaps of 16 ms in a step of 176 ms, then 18 ms in 125 ms; Python's part of them doubles."""
    shown = (
        Evidence(
            metric="host_loops_share", value=0.005, unit="share", meaning="Part of the step", limit=0.07,
            signs={"fires": "<"},
        ),
        Evidence(metric="launch_gap_share", value=0.146, unit="share", meaning="Part of the step", limit=0.1),
        Evidence(metric="small_kernel_share", value=0.63, unit="share", meaning="Part of the kernels", limit=0.5),
    )  # fmt: skip
    numbers = {"worker": 0, "launch_gap_share": 0.09, "host_loops_share": loops, "small_kernel_share": small}
    after = promised("small-kernels", 0, 0.16, "launch_gap").model_copy(update={"evidence": shown})
    base, head = run(times(1.76), passed=("small-kernels",)), run(times(1.25), findings=[after])
    base.metrics["worker"] = (numbers,)
    head.metrics["worker"] = ({item.metric: item.value for item in shown} | {"worker": 0},)
    assert [change.status for change in held(base, head).findings] == [status]


@pytest.mark.parametrize(("by", "status"), [(1.0, "hidden"), (0.95, "gone")])
def test_a_wait_that_a_new_bottleneck_covers_is_hidden(by: float, status: str):
    base = run(findings=[promised("loader", 0.05, 0.1, "input")], passed=("slow-kernels",))
    head = run(times(by), findings=[promised("slow-kernels", 0.1, 0.2)], passed=("loader",))
    assert {change.key: change.status for change in held(base, head).findings}["loader"] == status


def ops(factor: float, *, first: float = 1.0, number: int = 8, types: str | None = "fp32") -> Rows:
    row = {"calls": 100, "calls_per_step": 10.0, "sd_us": 1.0, "shapes": "[4]", "types": types}
    return [row | {"name": f"aten::op{n}", "mean_us": 100.0 * factor * (first if n == 0 else 1)} for n in range(number)]


@pytest.mark.parametrize("value", [2.5, True, 2**63, "3"])
@pytest.mark.parametrize("column", ["shapes", "calls", "mean_us"])
def test_a_saved_report_may_hold_values_of_other_types(column: str, value: object):
    odd = [*ops(1, number=2), *({**row, column: value} for row in ops(1))]
    assert held(run(op=odd), run(op=ops(1))).verdict == held(run(op=ops(1)), run(op=ops(1))).verdict


@pytest.mark.parametrize(
    ("base", "head", "by", "obstacle", "cautions"),
    [
        (ops(1), ops(1.6), 1.6, "machine", 0),
        (ops(1.6), ops(1), 1 / 1.6, "machine", 0),
        (ops(1), ops(1.6), 3.0, None, 1),  # more than the machine's part
        (ops(1), ops(1.1), 1.6, None, 0),
        (ops(1), ops(1, first=9), 1.6, None, 0),  # one op is slower, the others are as before
        (ops(1, number=3), ops(1.6, number=3), 1.6, None, 0),
        (ops(1), ops(1.6, types="fp64"), 1.6, None, 0),  # of the same sizes, but in other types
    ],
)
def test_ops_that_did_not_change_tell_another_machine(base: Rows, head: Rows, by: float, obstacle, cautions: int):
    found = held(run(op=base), run(times(by), op=head))
    assert found.obstacle == obstacle
    assert [caution.code for caution in found.cautions].count("other_machine") == cautions
    if obstacle:
        assert "8 ops that did not change take" in found.reason.words


@pytest.mark.parametrize("types", [("fp32", None), (None, "fp32"), (None, None)])
def test_where_types_were_not_recorded_they_may_be_what_differs(types: tuple[str | None, str | None]):
    base, head = run(op=ops(1, types=types[0])), run(times(1.6), op=ops(1.6, types=types[1]))
    assert held(base, head).reason == remark("other_machine_or_work", ops=8, ratio=1.6)


@pytest.mark.parametrize(
    ("by", "base", "head", "verdict"),
    [
        (1.3, 0.0, 0.2, "inconclusive"),  # 26 of 30 ms
        (1.3, 0.1, 0.1, "slower"),  # 3 of 30 ms
        (1 / 1.3, 0.2, 0.0, "inconclusive"),  # the base was recorded on a busy machine
        (1.3, 0.2, 0.0, "slower"),  # though other programs took less
    ],
)
def test_what_other_programs_took_is_no_change_of_the_job(by: float, base: float, head: float, verdict: str):
    sides = [{"compute": 1 - part, "other_programs": part} for part in (base, head)]
    known = held(run(parts=sides[0]), run(times(by), parts=sides[1]))
    assert known.verdict == verdict
    assert (known.obstacle, "record both sides on a quiet machine" in known.reason.words) == (
        ("machine", True) if verdict == "inconclusive" else (None, False)
    )


def timed_apart(waits: float, unprofiled_ms: float) -> Run:
    """A run of steps of 100 ms whose report is of steps that were timed without the profiler and without `waits`."""
    rows = {"other_programs": waits, "operators": 1 - waits}
    recorded = run(parts={"operators": 1.0}, device_row=[{"worker": 0, "device": None, "step_mean_ms": 100.0}])
    of = recorded.source
    source = of.model_copy(update={"steps": of.steps.model_copy(update={"unprofiled_ms": unprofiled_ms, "worker": 0})})
    table = tuple({"worker": 0, "device": None, "part": part, "share": share} for part, share in rows.items())
    return recorded.model_copy(update={"source": source, "metrics": {**recorded.metrics, "accounting": table}})


def test_recorded_steps_are_compared_with_their_waits_and_timed_ones_stand_beside():
    comparison = held(timed_apart(0.6, 38.0), timed_apart(0.5, 26.0))
    times = {shift.part: (shift.base_ms, shift.head_ms) for shift in comparison.breakdown}
    parts = {"other_programs": (60, 50), "operators": (40, 50)}
    assert times == {part: pytest.approx(of, rel=1e-3) for part, of in parts.items()}
    assert remark("unprofiled", base=38.0, head=26.0) in comparison.notes
    assert not any(note.code == "unprofiled" for note in held(timed_apart(0.6, 38.0), run()).notes)


def server(prefills: int, decode: float = 1.0) -> Run:
    """A server whose steps to decode take `decode` times the usual 100 ms, and prefills 900 ms each."""
    times = [*(decode * time for time in STEADY), *[900.0] * prefills]
    phases = ["decode"] * len(STEADY) + ["prefill"] * prefills
    step = [
        {"worker": 0, "step": n, "step_ms": time, "phase": phase}
        for n, (time, phase) in enumerate(zip(times, phases, strict=True))
    ]
    shares = {"idle_share": 0.1, "launch_share": 0.2, "communication_share": 0.0, "worker": None}
    rows = [{"phase": "decode", "steps": len(STEADY), "step_ms": 100.0 * decode}]
    rows += [{"phase": "prefill", "steps": prefills, "step_ms": 900.0}] if prefills else []
    return run(times, step=step, phase=[row | shares for row in rows])


def test_of_servers_that_prefill_the_steps_that_decode_are_compared():
    # as median of all steps, eleven prefills more would be nine times as slow
    assert held(server(2), server(30)).verdict == "same"
    slower = held(server(2), server(2, decode=1.3))
    assert (slower.verdict, slower.base.steps, slower.cause) == ("slower", len(STEADY), None)
    assert any(note.code == "phase_of_steps" for note in slower.notes)
    prefill, decode = slower.phases
    assert (prefill.phase, decode.phase) == ("prefill", "decode")
    assert decode.head is not None
    assert decode.head.step_ms == pytest.approx(130)


def test_a_server_that_only_decodes_is_compared_as_any_job():
    comparison = held(server(0), server(0, decode=1.3))
    assert comparison.verdict == "slower"
    assert not any(note.code == "phase_of_steps" for note in comparison.notes)


EPOCHS = ({"worker": 0, "device": 0, "recurring_every": 5},)


def test_steps_that_recur_count_where_a_median_leaves_them_out():
    """Each fifth of 16 steps takes 100 ms: the mean over whole periods is (4 x 10 + 100) / 5 = 28 ms."""
    times = [100.0 + step if step % 5 == 0 else 10 + step / 10 for step in range(16)]
    usual = [time for step, time in enumerate(times) if step % 5]
    mean = 0.8 * sum(usual) / 12 + 0.2 * (100 + 105 + 110 + 115) / 4
    base, head = run(times, device_row=EPOCHS), run([10 + step / 10 for step in range(16)])
    comparison = held(base, head)
    assert (comparison.base.series[0].recurring, comparison.base.series[0].every) == ((0, 5, 10, 15), 5)
    assert comparison.base.mean_ms == pytest.approx(mean)
    assert comparison.change
    assert comparison.change.of == "mean"
    assert comparison.change.ratio == pytest.approx(10.75 / mean)
    assert comparison.times_ms == (pytest.approx(mean), pytest.approx(10.75))
    assert comparison.verdict == "faster"


def test_a_period_that_no_recording_spans_is_none():
    """A report may name any: only periods that its steps have are tried."""
    comparison = held(run(device_row=({"worker": 0, "device": 0, "recurring_every": 10**18},)), run())
    assert comparison.base.series[0].recurring == ()


def test_a_period_that_no_other_step_varies_in_is_none():
    """Steps 0 and 5 of two would be all there is."""
    comparison = held(run([10.0, 11.0], device_row=EPOCHS), run())
    assert comparison.base.series[0].recurring == ()
    assert comparison.change
    assert comparison.change.of == "median"
