from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from advisor.model.clause import Missing, Note
from advisor.model.finding import _LIMITS, Fix, Patch
from advisor.model.reason import Reason
from advisor.model.report import Report, Run, Unreadable
from advisor.model.source import Workload
from advisor.present import document as doc
from advisor.present.actions import actions
from advisor.present.charts import charts
from advisor.present.next_recording import (
    advised,
    combined,
    command,
    measures,
    record,
    recording,
)
from advisor.present.next_recording import (
    trust as account,
)
from advisor.present.report import document, overview, unknowns
from advisor.render import terminal
from advisor.trials.ideas import of_option, use
from tests.render_samples import RESNET, SAMPLES, changed, cpu_only, part, report


def trust(run: Run) -> str:
    """What of the trust stands on the one screen."""
    return account(run)[0]


EIGHT = SAMPLES["many-workers"].runs[0]


@pytest.mark.parametrize(
    ("name", "arguments", "what"),
    [
        ("dataloader", {"num_workers": 2, "persistent_workers": True}, "action 1"),
        ("environment", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "action 1"),
        ("seldom", {"line": "train.py:41"}, "the most that action 1 can save"),
    ],
)
def test_the_next_command_tries_the_fix_with_the_arguments_that_are_advised(
    name: str, arguments: dict[str, Any], what: str
):
    fix = Fix(framework="any", do="Change it.", patch=Patch(name=name, arguments=arguments))
    finding = changed(RESNET.findings[0], fixes=(fix,))
    run = changed(RESNET, findings=(finding,), worthwhile=(changed(RESNET.worthwhile[0], findings=(finding.key,)),))
    assert measures(run).startswith(f"To measure {what}: `advisor try --patch {name}:")
    command = measures(run).partition("--patch ")[2].partition(" --")[0]
    assert of_option(command).uses == (use(name, arguments),)


def test_overview_counts_by_severity():
    assert overview(SAMPLES["several"]) == "3 runs, 6 findings: 1 high, 4 medium, 1 low; 2 files could not be read"
    resnet = SAMPLES["resnet"].runs[0]
    part = changed(resnet, source=changed(resnet.source, world_size=4), findings=())
    lost = SAMPLES["none"].unreadable
    assert overview(report(part, unreadable=lost)) == "1 run, 0 findings; 1 of 4 ranks read, 1 file could not be read"
    assert overview(SAMPLES["none"]) == "0 runs, 0 findings; 1 file could not be read"


def test_files_that_could_not_be_read_for_one_reason_are_all_counted():
    lost = (Unreadable(path="a", why="empty (and 2 more here)", others=("b", "c")), Unreadable(path="d", why="torn"))
    assert overview(Report(advisor_version="1", runs=(), unreadable=lost)).endswith("; 4 files could not be read")


def test_rules_that_lack_the_same_stand_together():
    assert unknowns(cpu_only().runs[0].not_evaluable) == [
        (
            "this worker used no device in the recording",
            ["launch-bound", "pageable-copies", "low-gpu-utilisation", "amp-unused"],
        )
    ]


def test_the_charts_are_called_after_what_they_show():
    def titles(run: Run) -> list[str]:
        return [section.title for section in document(Report(advisor_version="1", runs=(run,))).articles[0].sections]

    assert "Ranks, communication and memory" in titles(EIGHT)
    hosts = changed(EIGHT, source=changed(EIGHT.source, format="xplane"), findings=())
    assert "Hosts, communication and memory" in titles(hosts)
    heat = next(chart for chart in charts(hosts) if chart.name == "heat")
    assert (heat.title, "a slow host" in heat.says) == ("Hosts over the steps", True)
    names = [f"rank{n}" for n in range(8)]  # their files, not `rank 3`
    assert {row["rank"] for row in heat.data["cells"]} == {*names[:1], "rank1: awaited", *names[2:]}


def test_a_heat_map_of_many_ranks_is_of_nodes():
    rows = [
        {"rank": rank, "name": f"rank {rank}", "node": str(rank // 8), "step": step, "own_ms": 10.0 + (rank == 42)}
        for rank in range(72)
        for step in range(2)
    ]
    few = [row for row in rows if row["rank"] < 64]
    of_72 = changed(EIGHT, findings=(), metrics={**EIGHT.metrics, "pace": rows, "wait": ()})
    known = {chart.name: chart for chart in charts(of_72)}["heat"].data
    cells = known["cells"]
    expected = [(f"node {n}", step) for n in range(9) for step in range(2)]
    assert [(cell["rank"], cell["step"]) for cell in cells] == expected
    assert {cell["rank"] for cell in cells if cell["ms"] == 11} == {"node 5"}
    of_node_5 = [(cell["rank"], cell["ms"]) for cell in known["behind"]["node 5"]]
    assert of_node_5 == [(f"rank {n}", 11 if n == 42 else 10) for n in range(40, 48) for _ in range(2)]
    assert known["range"] == (10, 11)  # one shade is one time, on every node
    named = {chart.name: chart for chart in charts(changed(EIGHT, metrics={**EIGHT.metrics, "pace": few}))}
    assert len(named["heat"].data["cells"]) == len(few)


def test_a_heat_map_marks_the_ranks_that_a_finding_names():
    finding = EIGHT.findings[0]
    late = finding.evidence[0].model_copy(update={"value": "ranks 1\N{EN DASH}2, 5 (pipeline stage 1)"})
    of_all = finding.scope.model_copy(update={"workers": tuple(range(8))})
    findings = (finding.model_copy(update={"evidence": (late,), "scope": of_all}),)
    heat = next(chart for chart in charts(changed(EIGHT, findings=findings)) if chart.name == "heat")
    marked = {f"rank {n}" for n in (1, 2, 5)}
    assert {cell["rank"].split(":")[0] for cell in heat.data["cells"] if "#1" in cell["rank"]} == marked


def test_several_articles_have_an_overview_and_one_stands_for_itself():
    assert document(SAMPLES["several"]).is_several
    assert document(SAMPLES["resnet"]).title == document(SAMPLES["resnet"]).articles[0].headline
    assert [section.title for section in document(SAMPLES["none"]).front] == ["Could not be read"]


def lacking(format_: str, *reasons: str) -> Run:
    lacks = {f"table_{n}": Reason.of(Missing(reason)) for n, reason in enumerate(reasons)}
    return changed(RESNET, source=changed(RESNET.source, format=format_, lacks=lacks), not_evaluable=())


def test_what_was_not_recorded_is_asked_for_in_the_profilers_own_words():
    shapes = "`record_shapes=True` (the input shapes of every op)"
    assert recording(lacking("kineto", "no_shapes")) == f"`advisor record -- COMMAND`; by hand: {shapes}"
    nsys = recording(lacking("nsys", "no_memory_usage", "no_shapes"))
    assert nsys.startswith("`nsys profile --trace=cuda,nvtx,osrt --cuda-memory-usage=true COMMAND`; by hand: `--cuda-")
    assert recording(lacking("xplane", "no_stacks")) == "`advisor record -- COMMAND`"


def test_lines_that_samples_told_are_no_longer_said_to_be_unknown():
    run = lacking("kineto", "no_stacks")
    assert "Not recorded: source lines." in trust(run)
    sampled = changed(run, metrics=run.metrics | {"worker": ({"worker": 0, "main_sleep_share": 0.1},)})
    assert "Not recorded" not in trust(sampled)


def test_an_action_that_asks_for_a_recording_asks_for_all_that_lacks_and_nothing_else_does():
    run = lacking("kineto", "no_memory_profile")
    assert combined("Find the lines: `advisor record --stacks -- COMMAND`.", run, asks=True) == (
        "Find the lines: `advisor record --memory --stacks -- COMMAND`."
    )
    assert combined("Use workers: `num_workers=4`.", run, asks=False) == "Use workers: `num_workers=4`."
    later = combined("Record later steps: `advisor record --skip 100 -- COMMAND`.", run, asks=True)
    assert later == "Record later steps: `advisor record --memory --skip 100 -- COMMAND`."
    assert record(run) == "advisor record --memory -- COMMAND"
    fix = Fix(framework="any", do="Find the lines: `advisor record --stacks -- COMMAND`.", records=True)
    first, *others = run.findings
    assert record(changed(run, findings=(first.model_copy(update={"fixes": (fix,)}), *others))) == ""


def test_the_command_that_records_again_is_that_of_the_action_that_asks_for_it():
    """Marking steps asks for a recording; timing a dataset, whose text has the word further down, does not."""
    run = changed(lacking("kineto", "no_memory_profile"), findings=RESNET.findings[:1])
    marks = Fix(framework="any", do="Mark the steps, and record again.", records=True)
    times = Fix(framework="any", do="Time the dataset. The recording lacks it.", records=True)
    asking, timing = (changed(run, findings=(changed(run.findings[0], fixes=(fix,)),)) for fix in (marks, times))
    assert [advised(each) for each in (run, asking, timing)] == [None, 1, None]
    screens = [" ".join(terminal.render(document(report(each))).split()) for each in (asking, timing)]
    assert "1 Mark the steps, and record again: advisor record --memory -- COMMAND" in screens[0]
    assert "advisor record" not in screens[1]  # for the sake of no rule
    later = Fix(framework="any", do="Record later, with `--delay=60`.", records=True)
    nsys = changed(lacking("nsys", "no_memory_usage"), findings=(changed(run.findings[0], fixes=(later,)),))
    full = "nsys profile --trace=cuda,nvtx,osrt --delay=60 --cuda-memory-usage=true COMMAND"
    assert (command(nsys), record(nsys)) == (full, "")
    screen = " ".join(terminal.render(document(report(nsys))).replace("\\\n", "").split())
    assert f"Record later, with `--delay=60`: {full}" in screen
    lack = Reason.of(Missing("no_memory_profile"))
    unjudged = [
        changed(RESNET.not_evaluable[1], rule=name, missing={"m": lack})
        for name in ("memory-a", "memory-b", "memory-c")
    ]
    few, several = (changed(timing, not_evaluable=tuple(unjudged[:amount])) for amount in (2, 3))
    screens = [" ".join(terminal.render(document(report(each))).split()) for each in (few, several)]
    assert "advisor record" not in screens[0]
    assert "To record what is missing: advisor record --memory -- COMMAND" in screens[1]


def test_a_first_screen_asks_for_one_recording():
    asks = [Fix(framework="any", do=f"Record {of}: `nsys profile COMMAND`.", records=True) for of in ("later", "more")]
    ncu = Fix(framework="any", do="Profile the kernel: `ncu COMMAND`.", records=True)
    three = zip(RESNET.findings, (*asks, ncu), strict=False)
    run = changed(RESNET, findings=tuple(changed(of, fixes=(fix,), saving=None) for of, fix in three))
    assert [action.is_recording for action in run.actions].count(True) == 2
    assert [action.is_recording for action in run.listed].count(True) == 1
    assert any(action.do == ncu.do for action in run.listed)


def test_what_makes_trust_surer_is_an_action_where_it_stands_as_one():
    fix = Fix(framework="any", do="Give each run more work.")
    little = changed(RESNET.findings[0], saving=None, of_recording=True, severity="high", fixes=(fix,))
    timeline = changed(RESNET, source=changed(RESNET.source, format="tf_timeline"), findings=(little,))
    assert trust(timeline).endswith("To be surer, do action 1.")


def test_trust_names_all_that_weakens_it_and_what_to_do_about_it():
    ranks = Reason.of(Note("one_rank_of_job", ranks="0", job=8))
    guess = Reason.of(Note("steps_by_work", ops=4, turns=3, share=1.0, confidence="medium"))
    run = lacking("kineto", "no_memory_profile")
    alone, both = (changed(run, source=changed(run.source, notes=notes)) for notes in ((ranks,), (ranks, guess)))
    files = "put the files of all ranks into one folder: `advisor check FOLDER`."
    alone_so = "Only rank 0 of 8 is here."
    guessed_so = "Steps are guessed, so trust the shares more than the times."
    assert account(alone) == (f"medium, in the saving too. {alone_so} To be surer, {files}", "Not recorded: memory.")
    assert trust(both).startswith(f"medium, in the saving too. {alone_so[:-1]}, so who waits for whom is unknown. ")
    assert account(both)[1] == f"{guessed_so} Not recorded: memory."
    assert trust(both).endswith("record again, so that the steps are known: `advisor record --memory -- COMMAND`.")
    few = changed(both, source=changed(both.source, steps=changed(both.source.steps, used=3)))
    assert account(few)[1].endswith("Only 3 steps are used, so one-time work may mislead. Not recorded: memory.")
    sound = changed(run, source=changed(few.source, notes=()))
    assert (sound.trust, run.trust) == ("medium", "high")
    assert trust(sound).endswith("record ten steps: `advisor record --memory -- COMMAND`.")
    nsys = changed(both, source=changed(both.source, format="nsys"))
    assert trust(nsys).endswith('To be surer, put each step into `torch.cuda.nvtx.range("step")`, and record again.')
    less = Fix(framework="any", do="Record less: `nsys profile --sample=none COMMAND`. It is enough.")
    cost = changed(RESNET.findings[0], saving=None, of_recording=True, severity="low", fixes=(less,))
    one = changed(nsys, findings=(*nsys.findings, cost))
    assert trust(one).endswith("To be surer, record less: `nsys profile --sample=none COMMAND`.")
    later = Fix(framework="any", do="Record later: `advisor record -- COMMAND`.", records=True)
    asking = [changed(of, findings=(changed(RESNET.findings[0], fixes=(later,)),)) for of in (both, nsys)]
    assert trust(asking[0]).endswith("To be surer, do action 1.")
    assert trust(asking[1]).endswith('range("step")`, and do action 1.')  # a later recording marks no step
    assert changed(alone, source=changed(alone.source, salvaged=(Reason.of(Note("one_run")),))).trust == "low"


def test_what_a_reader_asks_about_the_saving_and_the_profiler_is_answered():
    first = RESNET.findings[0]
    wide, sure, none = (
        changed(RESNET, findings=(changed(first, saving=changed(first.saving, low_ms=low, high_ms=high)),))
        for low, high in ((30.0, 42.0), (31.0, 42.0), (0.0, 42.0))
    )
    assert trust(wide).startswith("high; in the saving: medium.")
    assert trust(sure).startswith("high, in the saving too.")
    assert trust(none).startswith("high; in the saving: low.")
    very = changed(first, saving=changed(first.saving, low_ms=14.0, high_ms=42.0))
    assert trust(changed(RESNET, findings=(very,))).startswith("high; in the saving: low.")
    timed = [changed(sure.source, steps=changed(sure.source.steps, unprofiled_ms=ms)) for ms in (50.0, 142.0, 143.0)]
    runs = [changed(sure, source=source) for source in timed]
    assert [run.trust for run in runs] == ["low", "medium", "high"]
    assert "Recorded steps are 25 % longer, so each part of the step is an estimate." in trust(runs[1])
    assert trust(runs[1]).endswith("To be surer, record less: `advisor record --no-shapes -- COMMAND`.")
    shares = (0.25, 0.05, 0.049)
    others = [part("other_programs", share) for share in shares]
    runs = [changed(sure, accounting=changed(RESNET.accounting, parts=(of,))) for of in others]
    assert [run.trust for run in runs] == ["low", "medium", "high"]
    assert "Other programs hold the CPU for 5 % of each step. To be surer, record again on a quiet" in trust(runs[1])


def test_the_limits_of_trust_are_those_of_the_page():
    rows = (Path(__file__).parents[3] / "docs/savings.md").read_text().split("## How far to trust")[1].split("\n")
    told = [[float(number) for number in re.findall(r"([\d.]+)(?= times| %)", row)] for row in rows]
    known = [[of["medium"], of["low"]] for of in _LIMITS.values()]
    assert [row for row in told if row][: len(known)] == [
        known[0],
        *([100 * limit for limit in of] for of in known[1:]),
    ]


def test_the_worst_reasons_of_three_stand_on_the_one_screen_and_the_others_behind_it():
    """Recorded steps that are three and a half times as long leave low trust, guessed and few steps medium."""
    guess = Reason.of(Note("steps_by_work", ops=4, turns=3, share=1.0, confidence="medium"))
    steps = changed(RESNET.source.steps, unprofiled_ms=50.0, used=3)
    run = changed(RESNET, source=changed(RESNET.source, notes=(guess,), steps=steps))
    assert trust(run).startswith("low, in the saving too. Recorded steps are 255 % longer, so each part")
    assert account(run)[1].startswith("Steps are guessed, so trust the shares more than the times. ")
    assert "Only 3 steps are used, so one-time work may mislead." in account(run)[1]
    short, full = (terminal.render(document(report(run)), verbose=verbose) for verbose in (False, True))
    assert ("Besides:" in short, "Besides: Steps are guessed" in full) == (False, True)


def test_a_recording_that_is_wrong_is_action_1_and_the_rest_comes_after():
    wrong = changed(
        RESNET, source=changed(RESNET.source, salvaged=(Reason.of(Note("fragment", kernels=2.0, host=9.0)),))
    )
    again, *others = actions(wrong).actions
    assert again.do == "Record again: `advisor record --memory -- COMMAND`. After that:"
    assert [action.number for action in others] == [2, 3]  # three in all
    assert [number for number, _ in wrong.numbered] == [2, 3]
    assert others[1].then.startswith("2 and 3 together: ")
    assert measures(wrong) == "`advisor compare BEFORE AFTER` shows what action 2 saved."
    assert [number for number, _ in RESNET.numbered] == [1, 2, 3]


def test_an_end_that_no_action_is_about_is_told_beside_what_was_recorded():
    first, says = RESNET.findings[0], "The GPU's memory was full. The program stopped with an error: it printed `x`."
    full = changed(first, key="b", loss="unknown", saving=None, says=says, title="The program stopped", fixes=())
    assert trust(changed(RESNET, findings=(first, full))).endswith(" The program stopped.")
    short = changed(full, title="The program stopped long before its end")
    assert trust(changed(RESNET, findings=(first, short))).endswith(" The GPU's memory was full.")
    assert "stopped" not in trust(changed(RESNET, findings=(first, changed(full, of_recording=True))))


def test_trust_in_a_saving_that_may_be_nothing_is_low_until_it_was_tried():
    first = RESNET.findings[0]
    won = first.saving
    assert won
    saves = [changed(first, saving=changed(won, low_ms=low_ms)) for low_ms in (0.0, won.high_ms / 2.9)]
    said = ["in the saving: low" in trust(changed(RESNET, findings=(of,))) for of in saves]
    assert said == [True, False]


def test_trust_says_how_much_of_the_time_has_no_recorded_cause():
    known = RESNET.accounting
    assert known
    part = changed(known.parts[0], part="unknown", share=0.17, is_useful=False)
    assert "17 % of the time has no recorded cause." in trust(changed(RESNET, accounting=changed(known, parts=(part,))))
    assert "no recorded cause" not in trust(RESNET)


def test_where_nothing_shows_where_the_time_goes_trust_is_low():
    high = changed(RESNET, findings=(), source=changed(RESNET.source, salvaged=(), notes=()))
    assert (high.trust, changed(high, accounting=None).trust) == ("high", "low")


def test_an_engine_is_asked_for_options_and_for_no_loop():
    run = lacking("kineto", "no_memory_profile")
    serving = changed(run, source=changed(run.source, workload=Workload(kinds=("serving",))))
    assert recording(serving) == "the profiler: `profile_memory=True` (how full the memory is)"


def test_no_text_of_a_document_is_markup_of_a_medium():
    for sample in ("resnet", "many-workers", "tensorflow"):
        text = repr(document(SAMPLES[sample]))
        assert "**" not in text
        assert "</" not in text


def test_a_block_is_on_the_screen_behind_it_or_both():
    levels = [doc.Level.BOTH, doc.Level.SCREEN, doc.Level.BEHIND, doc.Level.SPARE]
    assert [doc.on_screen(level, verbose=False) for level in levels] == [True, True, False, True]
    assert [doc.on_screen(level, verbose=True) for level in levels] == [True, False, True, True]
    assert not doc.on_screen(doc.Level.SPARE, verbose=False, has_room=False)


def test_a_step_that_is_left_out_has_its_reason_in_the_chart():
    rows = [
        {"worker": 0, "device": 0, "step": number, "step_ms": 10.0 * number, "left_out": why}
        for number, why in ((1, "outlier"), (2, None), (3, "cold_ops"))
    ]
    steps = RESNET.source.steps.model_copy(update={"marked": True, "left_out": ()})
    source = RESNET.source.model_copy(update={"steps": steps})
    run = RESNET.model_copy(update={"source": source, "metrics": {**RESNET.metrics, "recorded_step": rows}})
    chart = next(chart for chart in charts(run) if chart.name == "steps")
    assert [(cross["step"], cross["why"]) for cross in chart.data["crosses"]] == [(1, "left out"), (3, "left out")]
