from __future__ import annotations

import re
import sys
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from advisor.errors import UsageError
from advisor.inputs.names.stacks import stages
from advisor.model.report import Run
from advisor.present import document_of
from advisor.present.charts import Chart, charts
from advisor.render import html, svg
from advisor.vocabulary.parts import LOOKS, PARTS, variable
from tests.render_samples import RESNET, SAMPLES, changed


def chart(run: Run, name: str) -> Chart:
    return next(each for each in charts(run) if each.name == name)


def elements(drawing: str, tag: str) -> list[ET.Element]:
    return [*ET.fromstring(drawing).iter(tag)]  # noqa: S314 - our own drawing


def test_a_part_has_one_colour_on_the_whole_page():
    style, script, bars = html.part_colours(), html.asset("timeline.js"), html.asset("blocks.html")
    assert LOOKS.keys() >= {*PARTS, *(stage.name for stage in stages())}
    for code, look in LOOKS.items():
        assert f"--part-{code}: light-dark({look.colour.light}, {look.colour.dark});" in style
        assert variable(code) == f"--part-{code}"
    assert variable("of another version") == "--part-unknown"
    assert set(re.findall(r"--part-(\w+)", script)) <= PARTS.keys()
    assert "--part-${idle.cause[i]}" in script
    assert 'fill="{{ segment.part | colour }}"' in bars


@pytest.mark.parametrize("sample", ["resnet", "many-workers", "large"])
def test_every_chart_of_every_sample_is_one_sound_element(sample: str):
    for run in SAMPLES[sample].runs:
        for each in charts(run):
            drawing = svg.drawing(each, "run-1")
            assert elements(drawing, "svg")
            assert "nan" not in drawing
            assert len(drawing) < 150_000
            assert svg.numbers(each)


def test_bars_of_steps_are_to_scale():
    """Of two steps of 100 and 50 ms the second is half as high, and its two parts fill it."""

    def bar(step: int, order: int, part: str, ms: float) -> dict[str, object]:
        return {"step": step, "place": step - 1, "part": part, "ms": ms, "order": order, "used": step == 1}

    bars = [bar(1, 0, "kernels", 100.0), bar(2, 0, "kernels", 20.0), bar(2, 1, "copies", 30.0)]
    data = {"bars": bars, "crosses": [], "first": [1, 2], "every": 1}
    drawing = svg.drawing(Chart("steps", "", "", data), "run-1")
    drawn = elements(drawing, "rect")
    heights = [float(rect.attrib["height"]) for rect in drawn]
    assert heights == [180.0, 36.0, 54.0]
    assert [float(rect.attrib["y"]) for rect in drawn] == [0.0, 144.0, 90.0]
    assert [rect.attrib["fill"] for rect in drawn] == ["var(--part-compute)"] * 2 + ["var(--part-memcpy)"]
    assert "<title>step 2: 50 ms (kernels 20, copies 30)</title>" in drawing
    assert drawing.count('class="faint"') == 1


def test_steps_of_no_known_part_have_no_chart():
    rows = tuple({"step": step, "step_ms": 10.0} for step in (1, 2))
    steps = changed(RESNET.source.steps, left_out=())
    bare = changed(RESNET, metrics={"recorded_step": rows}, source=changed(RESNET.source, steps=steps))
    assert "steps" not in {each.name for each in charts(bare)}


def test_a_chart_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch):
    whole = html.drawings(SAMPLES["resnet"])["run-1"]
    monkeypatch.setitem(svg._DRAWS, "steps", lambda _: 1 / 0)  # noqa: SLF001 - a bug in one of them
    drawn = html.drawings(SAMPLES["resnet"])["run-1"]
    assert drawn.pop("steps") == "<p>Not drawn: advisor failed on it (ZeroDivisionError); please report this.</p>"
    assert drawn == {name: each for name, each in whole.items() if name != "steps"}


def test_many_steps_are_drawn_as_means_of_a_few():
    steps = tuple({"step": n, "step_ms": float(n % 2)} for n in range(240))
    parts = tuple({"step": n, "part": "compute", "share": 1.0} for n in range(240))
    source = changed(RESNET.source, steps=changed(RESNET.source.steps, left_out=()))
    steps = chart(changed(RESNET, metrics={"recorded_step": steps, "step_part": parts}, source=source), "steps")
    assert svg.numbers(steps)[1] == {
        "step": "2 to 3",
        "part": "kernels",
        "ms": 0.5,
        "order": 0,
        "place": 1,
        "used": True,
    }
    drawing = svg.drawing(steps, "run-1")
    assert len(elements(drawing, "rect")) == 120
    assert "<title>steps 0 to 1, mean: 0.5 ms (kernels 0.5)</title>" in drawing
    assert "each bar is the mean of 2" in drawing


def test_waits_that_are_nothing_beside_the_others_bear_no_number():
    wait = {"waiting": 0, "waiting_name": "rank 0", "awaited": 1, "awaited_name": "rank 1", "wait_ms": 10.0}
    tiny = {"waiting": 1, "waiting_name": "rank 1", "awaited": 0, "awaited_name": "rank 0", "wait_ms": 0.01}
    drawing = svg.drawing(chart(changed(RESNET, metrics={"wait": (wait, tiny)}), "waits"), "run-1")
    assert len(elements(drawing, "path")) == 2
    texts = [text.text for text in elements(drawing, "text")]
    assert "10" in texts
    assert "0.01" not in texts


def test_the_roof_is_to_scale_and_a_point_leads_to_its_finding():
    """2 GFLOP and 4 MB in 0.1 ms: 500 FLOP per byte at 20 TFLOP/s, under a roof of 100 from 50 FLOP per byte on."""
    finding = changed(RESNET.findings[0], where=(changed(RESNET.findings[0].where[0], op="aten::mm"),))
    row = {"op": "aten::mm", "shape": "[8, 8]", "dtype": "bf16", "gflops": 2.0, "megabytes": 4.0, "calls": 6}
    row |= {"total_ms": 0.6, "reached": 0.2, "peak_tflops": 100.0, "memory_gbs": 2000.0}
    run = changed(RESNET, metrics={"roof": (row, row | {"op": "aten::bmm", "megabytes": 400.0})}, findings=(finding,))
    roof = chart(run, "roof")
    assert roof.data["points"][0]["intensity"] == pytest.approx(500)
    assert roof.data["points"][0]["tflops"] == pytest.approx(20)
    drawing = svg.drawing(roof, "run-1")
    assert [link.attrib["href"] for link in elements(drawing, "a")] == ["#run-1-finding-1"]
    assert "aten::mm [8, 8]: 20 TFLOP/s, 20 % of the roof, " in drawing
    slope, flat = (line.attrib for line in elements(drawing, "line") if line.attrib["class"] == "dashed")
    assert float(flat["y1"]) == float(flat["y2"]) == float(slope["y2"]) < float(slope["y1"])


def test_use_over_time_has_a_row_for_what_is_known():
    parts = [{"part": n, "at_ms": n, "kernels": n / 2, "copies": 0.0, "sm_efficiency": None} for n in range(3)]
    drawing = svg.drawing(chart(changed(RESNET, metrics={"over_time": parts}), "use"), "run-1")
    texts = [text.text for text in elements(drawing, "text")]
    assert texts[:2] == ["kernels", "copies"]
    assert "SMs" not in texts


def test_a_share_of_the_time_is_as_dark_whatever_the_others_are():
    """0.97 beside 1.0 is no idle device."""
    parts = [{"part": n, "at_ms": n, "kernels": share} for n, share in enumerate((1.0, 0.97))]
    drawing = svg.drawing(chart(changed(RESNET, metrics={"over_time": parts}), "use"), "run-1")
    assert len([path for path in elements(drawing, "path") if "shade" in path.attrib["class"]]) == 1


def test_the_axis_of_devices_whose_steps_differ_is_that_of_the_longest():
    """Rank 0 takes 12 ms, rank 1 only 9.6: as text the latter is larger, and stood between 8 and 12."""
    parts = [
        {"part": n, "worker": rank, "device": 0, "at_ms": n * whole / 4, "kernels": 0.5}
        for n in range(4)
        for rank, whole in enumerate((12.0, 9.6))
    ]
    cells = chart(changed(RESNET, metrics={"over_time": parts}), "use").data["cells"]
    assert dict.fromkeys(cell["part"] for cell in cells) == dict.fromkeys(["0", "3", "6", "9"])


def test_without_steps_no_axis_is_per_step():
    run = SAMPLES["many-workers"].runs[0]
    bare = changed(run, source=changed(run.source, steps=changed(run.source.steps, marked=False)))
    assert not any("per step" in svg.drawing(each, "run-1") for each in charts(bare))
    assert not any("per step" in each.says for each in charts(bare))


def test_a_picture_is_whole_and_has_the_light_colours():
    whole = html.picture(document_of(SAMPLES["resnet"]).articles[0], "svg").decode()
    assert elements(whole, "{http://www.w3.org/2000/svg}rect")
    assert "var(" not in whole
    assert PARTS["compute"].look.colour.light in whole
    assert "kernels  44\N{NO-BREAK SPACE}%" in whole


def test_without_its_package_a_picture_in_pixels_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    article = document_of(SAMPLES["resnet"]).articles[0]
    assert html.picture(article, "png").startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UsageError, match=r"^PNG files .*: pip install 'gpu-advisor\[pictures\]'$"):
        html.picture(article, "png")


def roof_of(*speeds: float) -> list[float]:
    """Heights of the numbers at the left of a scatter of points of these TFLOP/s."""
    point = {"op": "aten::mm", "shape": "", "dtype": "bf16", "intensity": 5.0, "share": "1 %", "time": "1 ms"}
    points = [{**point, "tflops": speed, "finding": None} for speed in speeds]
    drawing = svg.drawing(Chart("roof", "", "", {"points": points, "roofs": {}}), "run-1")
    left = [of.attrib for of in elements(drawing, "text") if of.attrib.get("class") == "left"]
    return sorted(float(of["y"]) for of in left if of["x"] == "-8")


@pytest.mark.parametrize("speeds", [(0.095, 12.0), (1.05, 95.0), (0.5, 0.6)])
def test_no_number_of_an_axis_overprints_another(speeds: tuple[float, ...]):
    heights = roof_of(*speeds)
    assert len(heights) >= 3
    assert all(below - above >= 12 for above, below in pairwise(heights))


def test_long_names_of_rows_have_more_room():
    cells = [{"rank": name, "place": 0, "step": step, "ms": 9.0 * step} for name in ("rank 3",) for step in (1, 2)]
    data = {"range": (9.0, 18.0), "cells": cells}
    assert svg.drawing(Chart("heat", "", "", data), "run-1").startswith('<svg class="named drawing"')
    long = [cell | {"rank": "rank 3: #1, pace, awaited"} for cell in cells]
    assert svg.drawing(Chart("heat", "", "", data | {"cells": long}), "run-1").startswith(
        '<svg class="named long drawing"'
    )
