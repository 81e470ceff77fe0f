from __future__ import annotations

import pytest

from advisor.model.missing import Missing
from advisor.model.report import LeftOutStep, Place, Reason, Report, Steps, Unreadable, Worker
from advisor.render import html, markdown, terminal, words
from tests.render_samples import (
    INPUT_BOUND,
    LAUNCH_BOUND,
    PIPELINE,
    RESNET,
    SAMPLES,
    THIRTY_TWO_BIT,
    changed,
    cpu_only,
    report,
    saving,
)

STEPS = RESNET.source.steps
MARKED = {"marked": True, "count": 8, "used": 8, "step_ms": 177.4, "step_mean_ms": 177.6, "left_out": ()}
EIGHT = SAMPLES["many-workers"].runs[0]


def test_a_saving_is_told_of_its_own_step():
    assert words.saving(INPUT_BOUND, STEPS) == "30 to 59 of 178 ms a step (17\N{EN DASH}33 %)"
    other = changed(INPUT_BOUND, saving=changed(saving(10, 20, "input", ""), low_share=0.05, high_share=0.1))
    assert words.saving(other, STEPS) == "10 to 20 of 200 ms a step (5\N{EN DASH}10 %)"


def test_a_saving_from_nothing_on_is_told_as_up_to():
    finding = changed(INPUT_BOUND, saving=saving(0, 59.3, "input", ""))
    assert words.saving(finding, STEPS) == "up to 59 of 178 ms a step (up to 33 %)"


def test_a_saving_that_others_have_claimed_says_so():
    finding = changed(INPUT_BOUND, saving=saving(0, 0, "input", ""))
    assert words.saving(finding, STEPS) == "nothing beyond what the findings above give back"


def test_without_marked_steps_nothing_is_called_a_step():
    assert (
        words.saving(INPUT_BOUND, cpu_only().runs[0].source.steps) == "30 to 59 of 178 ms recorded (17\N{EN DASH}33 %)"
    )
    assert words.whole(cpu_only().runs[0].source.steps) == "the recording of 2.31 s"


def test_no_saving_has_no_words():
    assert words.saving(changed(INPUT_BOUND, saving=None), STEPS) is None


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (
            "resnet",
            ["pytorch profile (kineto)", "1 worker", "Tesla V100-DGXS-32GB", "6 of 8 steps used, 178 ms on average"],
        ),
        ("cpu-only", ["pytorch profile (kineto)", "1 worker", "no device", "no steps marked, 2.31 s recorded"]),
        ("unknown", ["kineto profile", "0 workers", "no device", "no steps marked"]),
    ],
)
def test_what_was_read(sample: str, expected: list[str]):
    assert words.what_was_read(SAMPLES[sample].runs[0].source) == expected


def test_an_nsight_export_is_no_profile_of_the_frameworks_profiler():
    source = SAMPLES["resnet"].runs[0].source
    assert words.what_was_read(changed(source, format="nsys"))[0] == "nsys profile of pytorch"
    assert words.what_was_read(changed(source, format="nsys", framework="cuda"))[0] == "CUDA program (nsys)"
    assert words.what_was_read(changed(source, format="nsys", framework=None))[0] == "nsys profile"


def test_many_ranks_and_devices_are_counted():
    _, workers, devices, _ = words.what_was_read(EIGHT.source)
    assert (workers, devices) == ("8 of 16 ranks", "8 \N{MULTIPLICATION SIGN} NVIDIA H100 80GB HBM3")


@pytest.mark.parametrize(
    ("used", "expected"), [(8, "8 steps, 178 ms on average"), (0, "0 of 8 steps used"), (1, "1 of 8 steps used")]
)
def test_steps_that_were_used(used: int, expected: str):
    source = changed(RESNET.source, steps=Steps(**MARKED | {"used": used}))
    assert words.what_was_read(source)[-1].startswith(expected)


def test_steps_left_out_for_one_reason_stand_together():
    left_out = tuple(LeftOutStep(worker=w, device=0, step=s, why="compiles") for w in (0, 1, 2) for s in (3, 4))
    steps = Steps(**MARKED | {"left_out": (*left_out, LeftOutStep(worker=5, device=0, step=9, why="outlier"))})
    assert words.left_out(changed(EIGHT.source, steps=steps)) == [
        ("steps 3\N{EN DASH}4 of workers 0\N{EN DASH}2", "compiles"),
        ("step 9 of worker 5", "outlier"),
    ]


def test_segments_fill_the_step_in_the_order_of_the_breakdown():
    drawn = words.segments(RESNET)
    assert [s.category for s in drawn] == [c for c, share in RESNET.breakdown.items() if share]
    assert [s.start for s in drawn] == pytest.approx([0, 0.4412, 0.452, 0.4531, 0.602, 0.936, 0.9877])
    assert drawn[4].ms == pytest.approx(0.334 * 177.6)


@pytest.mark.parametrize(
    ("allocating", "label"),
    [(0.08, "launch (mostly taking or freeing memory)"), (0.07, "launch"), (None, "launch")],
)
def test_launch_says_where_most_of_it_is_not_launching(allocating: float | None, label: str):
    row = RESNET.metrics["run"][0] | {"allocator_idle_share": allocating}
    run = changed(RESNET, breakdown={"launch": 0.15, "host": 0.85}, metrics={**RESNET.metrics, "run": (row,)})
    assert [s.label for s in words.segments(run)] == [label, "host"]
    assert f"{label} 15 %" in terminal.render(report(run))
    assert f"{label} 15 %" in markdown.render(report(run)).replace("\\", "")
    assert f"<span>{label}</span>" in html.render(report(run))


def test_rules_that_lack_the_same_are_told_together():
    assert words.unknowns(cpu_only().runs[0].not_evaluable) == [
        (
            "this worker used no device in the recording",
            ["launch-bound", "pageable-copies", "low-gpu-utilisation", "amp-unused"],
        )
    ]


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ("resnet", "9 rules: 4 found something, 2 found nothing, 2 could not be judged and 1 suppressed"),
        ("cpu-only", "6 rules: 2 found nothing and 4 could not be judged"),
        ("healthy", "11 rules: 11 found nothing"),
        ("unknown", "4 rules: 4 could not be judged"),
    ],
)
def test_silence_does_not_pass_for_health(sample: str, expected: str):
    assert words.tally(SAMPLES[sample].runs[0]) == expected


def test_overview_counts_by_severity():
    assert (
        words.overview(SAMPLES["several"]) == "3 runs, 6 findings: 1 high, 4 medium, 1 low; 2 files could not be read"
    )
    assert words.overview(SAMPLES["none"]) == "0 runs, 0 findings; 1 file could not be read"


def test_reach_is_told_where_there_are_several_workers():
    assert words.reach(INPUT_BOUND, RESNET) is None
    whole = changed(EIGHT, source=changed(EIGHT.source, world_size=8))
    assert words.reach(EIGHT.findings[-1], whole) == "workers 0\N{EN DASH}2, 5 of 8"
    assert words.reach(EIGHT.findings[0], whole) == "worker 0 of 8"
    scope = changed(EIGHT.findings[0].scope, workers=tuple(range(8)))
    assert words.reach(changed(EIGHT.findings[0], scope=scope), whole) == "all 8 workers"


def test_reach_is_among_the_ranks_that_were_recorded():
    assert (EIGHT.source.world_size, len(EIGHT.source.workers)) == (16, 8)
    assert words.reach(EIGHT.findings[-1], EIGHT) == "workers 0\N{EN DASH}2, 5 of the 8 recorded"
    scope = changed(EIGHT.findings[0].scope, workers=tuple(range(8)))
    assert words.reach(changed(EIGHT.findings[0], scope=scope), EIGHT) == "all 8 that were recorded"


def test_what_the_links_carry_is_one_line():
    told = {"bus_bandwidth_gbs": 64.1, "expected_bus_bandwidth_gbs": 211.0, "link_reached_share": 0.3038}
    large = {"op": "all_reduce", "group_size": 2, "bytes": 32 << 20, "algorithm_gbs": 13.0, "bus_gbs": 13.0}
    small = large | {"bytes": 1 << 20, "bus_gbs": 99.0}

    def line(run: dict[str, object], *collectives: dict[str, object]) -> str | None:
        return words.bandwidth(changed(EIGHT, metrics={"run": (run,), "collective": collectives}))

    assert line(told, large) == (
        "collectives of 4 MiB and more: bus bandwidth of 64.1 GB/s where the links allow 211 GB/s (30 %)"
    )
    assert line(told | {"link_reached_share": None}, small, large) == (
        "all_reduce of 32 MiB between 2 ranks: at least 13 GB/s algorithm and 13 GB/s bus bandwidth (waiting for late"
        " ranks is in it)"
    )
    one_way = large | {"op": "send", "exact": 1.0}
    assert line({}, one_way) == "send of 32 MiB from one rank to another: 13 GB/s"
    pair = {"slowest_pair": "ranks 2 and 3", "slowest_pair_share": 0.52}
    assert line(pair, one_way) == (
        "send of 32 MiB from one rank to another: 13 GB/s; the slowest link, between ranks 2 and 3, carries 52 % of the"
        " typical one"
    )
    assert line(pair | {"slowest_pair_share": 0.93}) == "no link between two ranks is slower than the others"
    assert line({}, small) is None
    assert line({}, large | {"bytes": None, "bus_gbs": None}) is None
    assert line({}) is None


def test_fixes_for_the_framework_of_the_run_come_first():
    mine, others = words.fixes(INPUT_BOUND, "tensorflow")
    assert [fix.framework for fix in mine] == ["tensorflow"]
    assert [fix.framework for fix in others] == ["pytorch", "pytorch", "jax"]


@pytest.mark.parametrize("framework", [None, "a framework of tomorrow"])
def test_where_no_fix_is_for_the_framework_all_are_shown(framework: str | None):
    mine, others = words.fixes(INPUT_BOUND, framework)
    assert (len(mine), list(others)) == (4, [])


def test_spots_name_step_and_time():
    place = Place(
        table="host_ops", name="x", worker=3, device=None, step=None, start_ns=99, at_ms=1234.56789, dur_ns=61_200_000
    )
    assert words.spot(place) == "worker 3: 61 ms at 1,234.568 ms"
    assert words.spot(THIRTY_TWO_BIT.where[0]) == "step 9, worker 0, device 0: 1.8 ms at 402.100 ms"


@pytest.mark.parametrize("link", ["https://docs.pytorch.org/a_b.html#c-d", "http://x.example/?a=1&b=2"])
def test_web_addresses_are_links(link: str):
    assert words.web_link(link) == link


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "javascript:alert(1)",
        "https://",
        "https://a b",
        "https://a\n",
        'https://a"b',
        "https://a>b",
        "https://a)b",
        " https://a",
        "file:///etc/passwd",
        "https://\N{CYRILLIC SMALL LETTER A}.example",
    ],
)
def test_anything_else_is_none(text: str | None):
    assert words.web_link(text) is None


def test_code_spans_are_cut_out():
    assert words.code_spans("Set `pin_memory=True` and `x`, not ` alone.") == [
        (False, "Set "),
        (True, "pin_memory=True"),
        (False, " and "),
        (True, "x"),
        (False, ", not ` alone."),
    ]
    assert LAUNCH_BOUND.fixes[0].link == words.web_link(LAUNCH_BOUND.fixes[0].link)


def test_files_that_could_not_be_read_for_one_reason_are_all_counted():
    lost = (Unreadable(path="a", why="empty (and 2 more here)", others=("b", "c")), Unreadable(path="d", why="torn"))
    assert words.overview(Report(advisor_version="1", runs=(), unreadable=lost)).endswith("; 4 files could not be read")


def lacking(format_: str, *codes: str):
    run = Report.model_validate(SAMPLES["resnet"].model_dump()).runs[0]
    lacks = {f"table_{n}": Reason.of(Missing(code)) for n, code in enumerate(codes)}
    return changed(run, source=changed(run.source, format=format_, lacks=lacks), not_evaluable=())


def test_what_was_not_recorded_is_asked_for_in_the_profilers_own_words():
    told = words.recording(lacking("kineto", "no_shapes"))
    assert told is not None
    assert told.startswith("with torch.profiler.profile(")
    nsys = lacking("nsys", "no_memory_usage", "no_shapes")
    assert words.recording(nsys) == "nsys profile --trace=cuda,nvtx,osrt \\\n    --cuda-memory-usage=true <command>\n"
    assert words.recording(lacking("nsys", "no_shapes")) is None
    assert words.recording(lacking("xplane", "no_stacks")) is None


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("input_share >= moderate", "33 % >= 5 %"),
        ("moderate <= input_share AND input_exposed_ms >= least", "5 % <= 33 % AND 59 ms >= 10 ms"),
        ("input_exposed_ms >= moderate * 178", "59 ms >= 0.05 * 178"),
        ("(input_share >= moderate OR unheard_of > least)", "(33 % >= 5 % OR unheard_of > 10)"),
    ],
)
def test_the_numbers_of_a_condition_stand_in_units(condition: str, expected: str):
    finding = changed(INPUT_BOUND, condition=condition, params={"moderate": 0.05, "least": 10.0})
    assert words.filled_in(finding) == expected


def test_a_flame_graph_is_called_after_its_frames():
    assert words.flame(RESNET) == (
        "Device time by module and operator",
        (
            "Time of kernels and copies under what launched them, where they overlap each counted; "
            "the backward pass counts where the forward op ran."
        ),
        "device time of a step: 100 ms",
    )
    rows = ({"id": 0, "parent": None, "name": "aten::mm", "kind": "op", "total_ms": 3.0, "self_ms": 3.0},)
    alone = changed(cpu_only().runs[0], metrics={"call_tree": rows})
    assert words.flame(alone) == (
        "Host time by operator",
        "Time of the host's ranges, all threads together.",
        "host time of the recording, all threads: 3 ms",
    )
    assert words.flame(changed(RESNET, metrics={})) is None
    unknown = ({"id": 0, "parent": None, "name": None, "kind": "op", "total_ms": 3.0, "self_ms": 3.0},)
    assert words.flame(changed(RESNET, metrics={"call_tree": unknown})) is None


def test_what_qualifies_a_verdict_stands_beside_it():
    assert words.verdict(RESNET) == (RESNET.verdict, "")
    unsure = changed(RESNET, verdict="Nothing found by 34 rules; 1 more could not be judged.")
    assert words.verdict(unsure) == ("Nothing found by 34 rules.", "1 more could not be judged.")


def test_the_tables_are_called_after_what_they_hold():
    assert words.tables_title(RESNET) == "Kernels and operators"
    assert words.tables_says(RESNET).startswith("Calls and times of a mean step. An operator's host time is without")
    kernels = changed(RESNET, metrics={"kernel_group": RESNET.metrics["kernel_group"]})
    unmarked = changed(kernels, source=changed(RESNET.source, steps=changed(RESNET.source.steps, marked=False)))
    assert (words.tables_title(unmarked), words.tables_says(unmarked)) == (
        "Kernels",
        "Calls and times of the recording.",
    )
    assert words.tables_title(changed(RESNET, metrics={})) == ""


def test_hosts_of_tensorflow_are_called_by_their_names():
    workers = tuple(Worker(worker=n, rank=None, name=name, file=name) for n, name in enumerate(("alpha", "beta")))
    source = changed(RESNET.source, format="xplane", workers=workers)
    run = changed(RESNET, source=source)
    assert (words.whose(source), words.owner(run, {"worker": 1})) == ("host", "beta")
    assert words.charts_title(["heat", "memory"], source) == "Hosts and memory"
    ranks = changed(source, format="kineto")
    assert (words.whose(ranks), words.owner(changed(run, source=ranks), {"worker": 1})) == ("rank", "rank 1")
    gpus = changed(source, workers=workers[:1], devices=RESNET.source.devices * 2)
    assert words.owner(changed(run, source=gpus), {"worker": 0, "device": 6}) == "worker 0, GPU 6"
    assert words.charts_title(["ranks"], gpus) == "GPUs"


def test_places_with_one_stack_are_told_together():
    def at(stack: str | None) -> Place:
        return changed(INPUT_BOUND.where[0], stack=stack)

    assert [len(group) for group in words.alike([at("a.py(1)"), at(None), at("a.py(1)"), at("b.py(1)")])] == [2, 1, 1]


def test_what_the_frameworks_tools_put_first():
    row = {
        "device_busy_share": 0.699,
        "device_op_share": 0.54,
        "tensor_core_share": 0.0,
        "host_eager_share": None,
        "peak_memory_bytes": 6 << 30,
        "peak_memory_share": 0.375,
    }
    run = changed(RESNET, metrics={**RESNET.metrics, "run": (row,)})
    assert words.headlines(run) == [
        ("device at work", "70 %"),
        ("Tensor Cores", "0 %"),
        ("memory peak", "6 GiB (38 %)"),
    ]
    of_tensorflow = changed(run, source=changed(run.source, framework="tensorflow"))
    assert ("ops on it", "54 %") in words.headlines(of_tensorflow)
    assert words.headlines(changed(run, metrics={})) == []


def test_hosts_and_what_takes_most_of_their_steps():
    rows = [
        {"worker": worker, "step": n, "step_ms": length, "bottleneck": most, "input_share": 0.7, "compute_share": 0.6}
        for worker, length, most in ((0, 20.0, "compute"), (1, 30.0, "input"))
        for n in range(2)
    ]
    workers = tuple(changed(RESNET.source.workers[0], worker=n, name=f"h{n}") for n in range(2))
    source = changed(RESNET.source, framework="jax", workers=workers)
    run = changed(RESNET, source=source, metrics={"step": tuple(rows)})
    assert words.hosts(run) == [
        "worker 1 (h1): 30 ms a step, mostly input (70 %)",
        "worker 0 (h0): 20 ms a step, mostly compute (60 %)",
    ]
    assert words.hosts(changed(run, source=changed(source, workers=workers[:1]))) == []


def test_each_gpu_of_an_nsight_export_has_a_line():
    quiet = {"worker": 0, "device": 0, "step_mean_ms": 200.0, "device_busy_share": 0.5, "communication_ms": 0.0}
    waiting = {"worker": 0, "device": 1, "step_mean_ms": 200.0, "device_busy_share": 0.9, "communication_ms": 20.0}
    waiting |= {"exposed_communication_ms": 10.0, "collective_calls": "all_reduce 33", "wait_ms": 9.0}
    run = changed(
        RESNET, source=changed(RESNET.source, format="nsys"), metrics={"device": (quiet, waiting), "step": ()}
    )
    assert words.each_rank(run) == [
        "GPU 0: busy 50 %, no NCCL kernels",
        "GPU 1: busy 90 %, NCCL 10 % (all_reduce 33), exposed 5 %, waits 9 ms",
    ]
    alike = changed(run, metrics={"device": (quiet, quiet | {"worker": 1})})
    assert words.each_rank(alike)[1] == "worker 1, GPU 0: busy 50 %, no NCCL kernels"
    assert words.each_rank(changed(run, metrics={"device": (quiet,)})) == []
    assert words.each_rank(changed(run, source=RESNET.source)) == []


def test_the_memory_at_the_peak_is_told_with_its_part_of_all():
    assert [(part.name, part.within, part.is_code, part.share) for part in words.peak(RESNET)] == [
        ("aten::conv2d", "Bottleneck", True, pytest.approx(4 / 7)),
        ("asked for outside any recorded op", "backward pass", False, pytest.approx(1 / 7)),
        ("all others", None, False, pytest.approx(0.5 / 7)),
        ("held before the recording began, such as weights", None, False, pytest.approx(1.5 / 7)),
    ]
    assert words.peak(changed(RESNET, metrics={})) == []


def test_a_pipeline_is_told_from_the_top_with_times_per_step():
    (top,) = words.pipelines(SAMPLES["tensorflow"].runs[0])
    assert (top.name, top.critical, top.bottleneck, top.waited) == ("Prefetch", True, False, 0.1)
    assert top.facts == ["steps wait 1 ms each", "works 0.5 ms a step", "12 calls"]
    (held,) = top.asks
    assert (held.name, held.bottleneck, held.waited) == ("Map", True, 0.9)
    assert held.facts == ["steps wait 9 ms each", "works 50 ms a step", "12 calls", "1 at once"]
    assert [stage.name for stage in held.asks[0].asks] == ["TFRecord", "Range"]
    assert held.asks[0].facts[0] == "no step waits for it"


def test_a_pipeline_of_which_the_top_was_lost_is_told_from_what_is_there():
    rows = tuple({**row, "parent": row["iterator"]} for row in PIPELINE)  # nonsense: each asks itself
    assert words.pipelines(changed(RESNET, metrics={"iterator": rows})) == []
    assert [s.name for s in words.pipelines(changed(RESNET, metrics={"iterator": PIPELINE[2:]}))] == ["Zip"]


def test_a_pipeline_in_words_is_a_line_for_each_transformation():
    lines = words.pipeline_lines(SAMPLES["tensorflow"].runs[0])
    assert lines[:2] == [
        (0, "Prefetch, on the critical path: steps wait 1 ms each, works 0.5 ms a step, 12 calls"),
        (1, "Map, the bottleneck: steps wait 9 ms each, works 50 ms a step, 12 calls, 1 at once"),
    ]
    assert [depth for depth, _ in lines] == [0, 1, 2, 3, 3]
    assert words.pipeline_lines(RESNET) == []
