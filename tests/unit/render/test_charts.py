from __future__ import annotations

import json
import re

from advisor.model.report import Run
from advisor.render import charts, html, words
from tests.render_samples import RESNET, SAMPLES, changed

EIGHT = SAMPLES["many-workers"].runs[0]


def chart(run: Run, name: str) -> charts.Chart:
    return next(one for one in charts.charts(run) if one.name == name)


def test_files_of_hosts_are_compared_as_hosts():
    assert chart(EIGHT, "heat").title == "Ranks over the steps"
    hosts = changed(EIGHT, source=changed(EIGHT.source, format="xplane"))
    assert chart(hosts, "heat").title == "Hosts over the steps"
    assert "a slow host" in chart(hosts, "heat").says
    named = {row["rank"] for rows in chart(hosts, "heat").spec["datasets"].values() for row in rows}
    assert named == {f"rank{n}" for n in range(8)}  # their files, not `rank 3`


def test_a_category_has_one_colour_on_the_whole_page():
    style, drawn = html.asset("report.css"), html.asset("timeline.js")
    for category in words.CATEGORIES:
        assert re.search(rf"\.c-{category}\b[^{{}}]*{{ fill: var\({charts.COLORS[category]}\)", style)
    assert "--gap-input: var(--idle-1)" in style
    assert charts.COLORS["input"] == "--idle-1"
    assert 'input: "--gap-input"' in drawn
    assert charts.COLORS["compile"] == "--gap-compile"


def test_waits_that_are_nothing_beside_the_others_bear_no_number():
    wait = {"waiting": 0, "waiting_name": "rank 0", "awaited": 1, "awaited_name": "rank 1", "wait_ms": 10.0}
    tiny = {"waiting": 1, "waiting_name": "rank 1", "awaited": 0, "awaited_name": "rank 0", "wait_ms": 0.01}
    spec = chart(changed(RESNET, metrics={"wait": (wait, tiny)}), "waits").spec
    cells, *numbers = spec["layer"]
    rows = [[row["ms"] for row in spec["datasets"][layer["data"]["name"]]] for layer in spec["layer"]]
    assert (rows, len(numbers)) == ([[10, 0.01], [10]], 1)
    assert (cells["encoding"]["y"]["title"], cells["encoding"]["x"]["title"]) == ("this one waits", "for this one")


def test_every_chart_of_every_sample_is_json():
    for sample in ("resnet", "many-workers", "large"):
        for run in SAMPLES[sample].runs:
            assert all(json.dumps(one.spec, allow_nan=False) for one in charts.charts(run))
