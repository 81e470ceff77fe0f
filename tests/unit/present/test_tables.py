from __future__ import annotations

import pytest

from advisor.present import document as doc
from advisor.present.accounting import accounting, parts
from advisor.present.findings import findings
from advisor.present.report import figures
from advisor.present.tables import flame, kernels_and_operators, loading, peak, pipeline
from advisor.present.verdict import headline
from advisor.text import first_sentence
from tests.render_samples import ACCOUNTING, PIPELINE, RESNET, SAMPLES, changed, cpu_only, part


def test_a_bar_has_the_parts_of_the_accounting_and_no_other_numbers():
    (bars, brief, *_), (table,) = accounting(RESNET), parts(RESNET)
    segments = bars.bars[0].segments
    assert [part.part for part in segments] == [part.part for part in ACCOUNTING.parts]
    assert (segments[2].ms, segments[2].value, segments[2].time) == (pytest.approx(0.334 * 177.6), "33 %", "59 ms")
    assert [(row.part, row.cells[1].text, row.cells[2].text) for row in table.rows] == [
        (part.part, part.value, part.time) for part in segments
    ]
    assert brief.text == "Busy 44 %."


def test_time_of_which_the_recording_lacks_the_work_is_not_called_idle():
    lacking = changed(RESNET.findings[0], loss="unknown", saving=None)
    unrecorded = (part("compute", 0.3), part("sync", 0.1), part("unknown", 0.6, lacking.rule))
    known = changed(ACCOUNTING, parts=unrecorded)
    run = changed(RESNET, accounting=known, findings=(lacking,))
    _, brief, *_ = accounting(run)
    assert brief.text.startswith("Busy 30 %, not recorded 60 %.")
    assert headline(run).endswith(first_sentence(lacking.says))
    assert findings(run).findings[0].symptoms == ()


def test_a_large_loss_that_no_finding_explains_is_marked_so():
    loss = changed(ACCOUNTING, parts=(part("compute", 0.4), part("sync", 0.3), part("unknown", 0.3)))
    assert [of.label for of in accounting(changed(RESNET, accounting=loss))[0].bars[0].segments] == [
        "kernels",
        "synchronising",
        "cause not recorded",
    ]


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
    assert figures(run) == (
        doc.Figure("device runs anything", "70 %", "of the step"),
        doc.Figure("Tensor Cores", "0 %", "of kernel time"),
        doc.Figure("memory peak", "6 GiB (38 % of the device's memory)"),
    )
    of_tensorflow = changed(run, source=changed(run.source, framework="tensorflow"))
    assert doc.Figure("ops that use the device", "54 %", "of all ops") in figures(of_tensorflow)
    assert figures(changed(run, metrics={})) == ()


def test_a_flame_graph_is_called_after_its_frames():
    section = flame(RESNET)
    assert section
    (widget,) = section.blocks
    assert isinstance(widget, doc.Widget)
    assert (section.title, widget.words) == (
        "Device time by module and operator",
        ("device time of a step: 100 ms",),
    )
    assert widget.says == (
        "Time of kernels and copies under what launched them; where they overlap, each counts; the backward pass "
        "counts where the forward op ran. The stronger the colour, the more of the time a frame takes by itself."
    )
    rows = ({"id": 0, "parent": None, "name": "aten::mm", "kind": "op", "total_ms": 3.0, "self_ms": 3.0},)
    alone = flame(changed(cpu_only().runs[0], metrics={"call_tree": rows}))
    assert alone
    assert alone.title == "Host time by operator"
    assert flame(changed(RESNET, metrics={})) is None
    unknown = ({"id": 0, "parent": None, "name": None, "kind": "op", "total_ms": 3.0, "self_ms": 3.0},)
    assert flame(changed(RESNET, metrics={"call_tree": unknown})) is None


def test_the_tables_are_called_after_what_they_hold():
    section = kernels_and_operators(RESNET)
    assert section
    assert section.title == "Kernels and operators"
    says = [block.says for block in section.blocks if isinstance(block, doc.Widget)]
    assert says[0].startswith("Calls and times of a mean step. An operator's host time excludes")
    kernels = changed(RESNET, metrics={"kernel_group": RESNET.metrics["kernel_group"]})
    unmarked = changed(kernels, source=changed(RESNET.source, steps=changed(RESNET.source.steps, marked=False)))
    alone = kernels_and_operators(unmarked)
    assert alone
    assert (alone.title, alone.blocks[0].says) == ("Kernels", "Calls and times in the time used.")
    assert kernels_and_operators(changed(RESNET, metrics={})) is None


def test_the_memory_at_the_peak_has_its_part_of_all():
    table = peak(RESNET)
    assert table
    assert [(row.cells[0].text, row.cells[0].beside, row.cells[0].is_code) for row in table.rows] == [
        ("aten::conv2d", "Bottleneck, 53 blocks", True),
        ("allocated outside any recorded op", "backward pass, 1 block", False),
        ("all others", "46 blocks", False),
        ("allocated before the recording began, such as weights", "", False),
    ]
    assert [row.extent for row in table.rows] == [(pytest.approx(n / 7),) * 2 for n in (4, 1, 0.5, 1.5)]
    assert peak(changed(RESNET, metrics={})) is None


def stages(run: object) -> list[tuple[str, ...]]:
    """The cells of a pipeline's rows, with what stands beside the first."""
    section = pipeline(run)
    rows = section.blocks[1].rows if section else ()
    return [(row.cells[0].text.replace("\N{NO-BREAK SPACE}", "."), row.cells[0].beside, *texts(row)) for row in rows]


def texts(row: doc.Row) -> list[str]:
    return [cell.text for cell in row.cells[1:]]


def test_a_pipeline_is_listed_from_the_top_with_times_per_step():
    rows = stages(SAMPLES["tensorflow"].runs[0])
    assert rows[:2] == [
        ("Prefetch", "critical path", "1 ms", "0.5 ms", "12", ""),
        ("..Map", "bottleneck", "9 ms", "50 ms", "12", "1"),
    ]
    assert [row[0] for row in rows[2:]] == ["....Zip", "......TFRecord", "......Range"]
    assert pipeline(SAMPLES["tensorflow"].runs[0]).blocks[1].rows[1].extent == (0.9, 0.9)


def test_a_pipeline_of_which_the_top_was_lost_is_listed_from_what_is_there():
    rows = tuple({**row, "parent": row["iterator"]} for row in PIPELINE)  # nonsense: each asks itself
    assert stages(changed(RESNET, metrics={"iterator": rows})) == []
    assert stages(changed(RESNET, metrics={"iterator": PIPELINE[2:]}))[0][0] == "Zip"


def test_the_journey_of_a_batch_is_one_bar_and_each_change_says_what_holds_the_next_batch():
    stages = [{"stage": "read", "words": "reading files", "ms": 30.0}, {"stage": "pin", "words": "pinning", "ms": 10.0}]
    paces = [
        {"processes": 0, "without": None, "is_now": True, "period_ms": 50.0, "limit": "storage"},
        {"processes": 1, "without": None, "is_now": False, "period_ms": 40.0, "limit": "loading"},
        {"processes": 0, "without": "read", "is_now": False, "period_ms": 20.0, "limit": "step"},
        {"processes": 0, "without": "all", "is_now": False, "period_ms": 10.0, "limit": "step"},
    ]
    device = [{"slow_samples": [{"name": "7", "ms": 1000.0}]}]
    run = changed(RESNET, metrics={"loading_stage": stages, "loading_pace": paces, "device": device})
    section = loading(run)
    assert section is not None
    bars, slow, _, table = section.blocks
    assert isinstance(bars, doc.Bars)
    assert [(s.part, s.share, s.value) for s in bars.bars[0].segments] == [
        ("read", 0.75, "30 ms"),
        ("pin", 0.25, "10 ms"),
    ]
    assert slow == doc.Text("7 (1 s)", label="Samples that take longest, by index:")
    assert isinstance(table, doc.Table)
    assert [row.extent for row in table.rows] == [(0.2, 0.2), (0.25, 0.25), (0.5, 0.5), (1.0, 1.0)]  # of 100 a second
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["0 workers", "50 ms", "20", "loading"],
        ["1 worker", "40 ms", "25", "loading"],
        ["without reading files", "20 ms", "50", "the step's rest"],
        ["every batch ready at once", "10 ms", "100", "the step's rest"],
    ]
    assert loading(changed(RESNET, metrics={})) is None
