from __future__ import annotations

import json
import re
import sys
from importlib.metadata import version
from typing import Any

import altair as alt
import pytest
import vl_convert

from advisor.errors import UsageError
from advisor.model.report import Run
from advisor.present import document_of
from advisor.present.charts import charts
from advisor.render import html, vega
from advisor.system.resources import reports_folder
from advisor.vocabulary.parts import PARTS, variable
from tests.render_samples import RESNET, SAMPLES, changed


def spec(run: Run, name: str) -> dict[str, Any]:
    return vega.spec(next(chart for chart in charts(run) if chart.name == name))


def test_a_part_has_one_colour_on_the_whole_page():
    style, script, bars = html.part_colours(), html.asset("timeline.js"), html.asset("blocks.html")
    for code, part in PARTS.items():
        assert f"--part-{code}: light-dark({part.look.colour.light}, {part.look.colour.dark});" in style
        assert variable(code) == f"--part-{code}"
    assert variable("of another version") == "--part-unknown"
    assert set(re.findall(r"--part-(\w+)", script)) <= PARTS.keys()
    assert "--part-${idle.cause[i]}" in script
    assert 'fill="{{ segment.part | colour }}"' in bars


def test_a_picture_has_the_light_colours_of_the_page():
    style = html.part_colours() + html.asset("report.css")
    light = vega._light()  # noqa: SLF001 - what a picture replaces the page's variables by
    assert {*map(variable, PARTS)} <= light.keys()
    assert all(f"{name}: light-dark({color}," in style for name, color in light.items())


def test_waits_that_are_nothing_beside_the_others_bear_no_number():
    wait = {"waiting": 0, "waiting_name": "rank 0", "awaited": 1, "awaited_name": "rank 1", "wait_ms": 10.0}
    tiny = {"waiting": 1, "waiting_name": "rank 1", "awaited": 0, "awaited_name": "rank 0", "wait_ms": 0.01}
    waits = spec(changed(RESNET, metrics={"wait": (wait, tiny)}), "waits")
    cells, *numbers = waits["layer"]
    rows = [[row["ms"] for row in waits["datasets"][layer["data"]["name"]]] for layer in waits["layer"]]
    assert (rows, len(numbers)) == ([[10, 0.01], [10]], 1)
    assert (cells["encoding"]["y"]["title"], cells["encoding"]["x"]["title"]) == ("this one waits", "for this one")


def test_every_chart_of_every_sample_is_json():
    for sample in ("resnet", "many-workers", "large"):
        for run in SAMPLES[sample].runs:
            assert all(json.dumps(vega.spec(chart), allow_nan=False) for chart in charts(run))


@pytest.mark.parametrize("sample", ["resnet", "many-workers"])
def test_charts_keep_to_the_schema_of_vega_lite(sample: str):
    for chart in charts(SAMPLES[sample].runs[0]):
        alt.Chart.from_dict({**vega.spec(chart), "config": {}}, validate=True)


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_without_its_package_a_picture_says_what_to_install(kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UsageError, match=rf"^{kind.upper()} files .*: pip install 'gpu-advisor\[pictures\]'$"):
        vega.picture(document_of(SAMPLES["resnet"]).articles[0], kind)


def test_the_script_of_the_charts_is_that_of_its_version():
    script = (reports_folder() / "templates" / "vega.js").read_text("utf-8")
    head, _, rest = script.partition("\n")
    if not head.endswith(f" {version('vl-convert-python')}"):
        pytest.skip("another vl-convert is installed than the one that bundled the script")
    assert rest == vl_convert.javascript_bundle(None).replace("</script", "<\\/script")


def test_without_steps_no_axis_is_per_step():
    run = SAMPLES["many-workers"].runs[0]
    bare = changed(run, source=changed(run.source, steps=changed(run.source.steps, marked=False)))
    assert "per step" not in json.dumps([vega.spec(chart) for chart in charts(bare)])
    assert not any("per step" in chart.says for chart in charts(bare))
