"""Rules of users that measure by names, against what the trace itself says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from advisor import engine
from advisor.config import Config
from advisor.errors import RuleError
from advisor.options import Options
from advisor.rules.rule_file import selected
from advisor.rules.user_config import rule_of
from tests.timelines import view

pytestmark = pytest.mark.usefixtures("measured_once")

FIXTURE = Path(__file__).parents[3] / "fixtures/torch-cpu-none"
RULE = """\
title: Products take long
measure:
  products: {ops: "^aten::addmm$"}
  updates: {ops: "^aten::add_$", within: stepping}
  stepping: {ranges: "^Optimizer[.]step#"}
params: {most: 0.01 %}
when: products_share > most
saving: {of: host_ops, without: products}
says: "{{ products_names }}: {{ products_share | percent }}; {{ updates_per_step }} updates."
why: They do.
fixes:
- {for: any, do: Multiply less.}
references:
- own choice: "0.01 %"
cases:
- many: {products_share: 1 %, products_names: x, updates_per_step: 1}
- none recorded: {not_evaluable: [products_share]}
"""


def checked(tmp_path: Path, text: str):
    (tmp_path / "products.yaml").write_text(text)
    (run,) = engine.check([str(FIXTURE)], Options(config=Config(rules=(tmp_path,)))).runs
    return run


def events(name: str) -> list[dict[str, float]]:
    trace = json.loads(gzip.decompress((FIXTURE / "none.pt.trace.json.gz").read_bytes()))
    return [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op" and event["name"] == name]


def test_a_rule_without_python_measures_fires_and_saves(tmp_path):
    run = checked(tmp_path, RULE)
    values = run.metrics["run"][0]
    steps, step_ms = run.source.steps.used, run.source.steps.step_mean_ms
    inner = events("aten::as_strided"), events("aten::expand"), events("aten::copy_"), events("aten::resolve_conj")
    took_us = 0.0
    for product in events("aten::addmm"):
        end = product["ts"] + product["dur"]
        nested = [e for of in inner for e in of if product["ts"] <= e["ts"] and e["ts"] + e["dur"] <= end]
        outer = [e for e in nested if not any(o is not e and o["ts"] <= e["ts"] < o["ts"] + o["dur"] for o in nested)]
        took_us += product["dur"] - sum(e["dur"] for e in outer)
    assert values["products.products_share"] == pytest.approx(took_us / 1e3 / steps / step_ms, rel=1e-3)
    assert values["products.updates_per_step"] > 0
    assert "products.products_gain_ms" in values
    (finding,) = (f for f in run.findings if f.rule == "products")
    assert "aten::addmm" in finding.says
    whole_us = sum(product["dur"] for product in events("aten::addmm"))  # what lies in them goes with them
    assert finding.saving.high_ms == pytest.approx(whole_us / 1e3 / steps, rel=1e-3)
    assert finding.evidence[0].metric == "products.products_share"
    assert {place.name for place in finding.where} == {"aten::addmm"}


def test_nothing_is_measured_for_a_rule_that_cannot_apply(tmp_path):
    of_device = view([], [])
    for applies, unmeasured in (
        ("device: true", None),
        ("device: false", "device_used"),
        ("framework: [jax]", "jax_only"),
        ("framework: [jax, any]", None),
        ("framework: [any]", None),
    ):
        (path := tmp_path / "products.yaml").write_text(RULE.replace("when:", f"applies: {{{applies}}}\nwhen:"))
        (share, *_) = selected([rule := rule_of(path)])
        codes = (getattr(metric.value(of_device), "code", None) for metric in (share, rule.metric("products_share")))
        assert [code if code in {"device_used", "jax_only"} else None for code in codes] == [unmeasured, None], applies


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('{ops: "^aten::addmm$"}', '{ops: "(?=a)"}', "is no regular expression of Rust"),
        ('{ops: "^aten::addmm$"}', '{op: "a"}', "measure.products.op: no such key in a rule; did you mean 'ops'?"),
        ("within: stepping", "within: steping", "no selection is called 'steping'; did you mean 'stepping'?"),
        ("products_share > most", "product_share > most", "did you mean 'products_share'?"),
        ("without: products", "without: product", "no selection is called 'product'"),
    ],
)
def test_what_is_wrong_with_a_selection_is_said_with_file_and_line(tmp_path, old, new, why):
    assert old in RULE
    with pytest.raises(RuleError, match=r"products\.yaml:\d+: ") as error:
        checked(tmp_path, RULE.replace(old, new))
    assert why in str(error.value)
