"""Recordings of inference and serving: what a person reads in them, and words that do not belong there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from advisor.model.report import Run
from advisor.present.report import document
from advisor.render import brief, html, markdown, terminal
from advisor.render.html import drawings
from tests import profiles
from tests.effort import soak

SHARED = Path(__file__).parents[2].parent / "shared"
TRACES = SHARED / "traces"
KINDS = {
    "kineto/sglang-prefill-decode-mi300": "serving",
    "kineto/vllm-eager-b200": "serving",
    "kineto/vllm-decode-cuda-graph": "serving",
    "kineto/owlv2-mi300": "inference",
    "kineto/particle-transformer-bs128": "inference",
    "kineto/particle-transformer-bs256-jit": "inference",
    "kineto/qwen-h100": "inference",
    "kineto/bert-small-h100": "inference",
    "kineto/event-sync-multi-stream": "benchmark",
    "kineto/resnet50-v100-workers0": "training",
    "kineto/ddp-resnet18-mi300": "training",
    "kineto/param-linear-2080ti": "training",
    "nsys/saxpy-mpi-a100-schema2.9.sqlite": "benchmark",
    "nsys/llm-3070ti-17k-kernels.sqlite": "training",
    "xplane/te-attention-mi355": "training",
}
WITHOUT_TRAINING = [
    *sorted(TRACES / name for name, kind in KINDS.items() if kind != "training"),
    *(profiles.ROOT / "fixtures" / name for name in ("torch-cpu-server", "simulated-server-h100")),
]
OF_TRAINING = re.compile(
    r"(?i)learning.rate|optimi[sz]er|epoch|train_step|gradient|training (?:process|loop|thread|step)"
)

_SENTENCES = ("title", "says", "why", "do", "code", "numerics", "method", "words", "verdict", "notes")

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"{TRACES} is not there")


def run_of(name: str) -> Run:
    (run,) = profiles.check(TRACES / name).runs
    return run


@pytest.mark.parametrize("name", soak(KINDS, unless=profiles.is_common))
def test_the_kind_of_work(name: str):
    run = run_of(name)
    assert run.source.workload.kinds == (KINDS[name],)
    assert run.source.workload.signs


def sentences(value: object, field: str = "") -> Iterator[str]:
    """The texts of a report that advisor wrote itself: what it quotes, and names of rules and metrics, are others."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from sentences(item, str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from sentences(item, field)
    elif isinstance(value, str) and field in _SENTENCES:
        yield value


def seen(html: str) -> str:
    """What a page shows of itself, without what its scripts draw from."""
    return re.sub(r"<[^>]*>", " ", re.sub(r"(?s)<(script|style)\b.*?</\1>", "", html))


@pytest.mark.parametrize("path", soak(WITHOUT_TRAINING, unless=profiles.is_common), ids=lambda path: path.name)
def test_no_word_of_training_stands_in_a_report_of_inference(path: Path):
    report = profiles.check(path)
    page = document(report)
    texts = {
        "terminal": terminal.render(page, verbose=True),
        "markdown": markdown.render(page, most=1_000_000),
        "brief": brief.render(report),
        "page": seen(html.render(page, {}, drawings(report))),
        "json": "\n".join(sentences(report.model_dump())),
    }
    rules = "|".join([*sorted(profiles.book(), key=len, reverse=True), r"[\w-]+…"])  # names, and those that are cut
    words = {kind: OF_TRAINING.findall(re.sub(rules, "", text)) for kind, text in texts.items()}
    assert not any(words.values()), words


def test_a_prefill_behind_an_unrecorded_one_is_healthy():
    # read by hand: one prefill of 15 requests and 15360 tokens takes the device 494.0 ms, 99.8 % of them in kernels; an
    # op launched at 0.1 ms begins at 493.4 ms, behind work that was not recorded
    run = run_of("kineto/sglang-prefill-decode-mi300")
    assert [finding.rule for finding in run.findings] == ["too-few-steps"]
    assert run.metrics["run"][0]["step_mean_ms"] == pytest.approx(494.0, abs=0.1)
    assert run.metrics["run"][0]["device_busy_share"] == pytest.approx(0.998, abs=0.002)


def test_a_prefill_without_graphs_is_bound_by_the_host():
    # read by hand: 768 kernels of one prefill, launched one by one, take 12 of 87 ms; no graph is launched
    run = run_of("kineto/vllm-eager-b200")
    first = run.findings[0]
    assert first.rule == "small-kernels"
    assert first.saving is not None
    assert first.saving.high_ms <= 87 - 11


def test_a_decode_step_in_one_graph_is_healthy():
    # read by hand: one cudaGraphLaunch runs all of a decode step of 32 requests; no gap is longer than 20 us
    run = run_of("kineto/vllm-decode-cuda-graph")
    assert [finding.rule for finding in run.findings] == ["too-few-steps"]


@pytest.mark.parametrize(
    ("fault", "first"),
    [
        pytest.param("server-with-prefills", ["tail-wave"], marks=pytest.mark.soak),
        pytest.param("decode-without-graphs", ["decode-outside-graphs"], marks=pytest.mark.soak),
        ("long-prefills", ["prefill-stalls-decode"]),
    ],
)
def test_a_simulated_server_is_told_by_its_fault(tmp_path: Path, fault: str, first: list[str]):
    made = profiles.case(fault, "h100", 1, 12)
    (name, text), *_ = made.files()
    (tmp_path / name).write_bytes(text)
    (run,) = profiles.check(tmp_path / name).runs
    assert [finding.rule for finding in run.findings if finding.severity != "low"][:1] == first
    assert run.source.workload.kinds == ("serving",)
    assert {row["phase"] for row in run.metrics["phase"]} <= {"prefill", "decode"}


def test_nsight_shows_the_same_phases(tmp_path: Path):
    from simulator import nsys  # noqa: PLC0415 - the scripts of fixtures/ are no package

    (_, text), *_ = profiles.case("slow-scheduler", "h100", 1, 12).files()
    (run,) = profiles.check(nsys.write(json.loads(text), tmp_path / "server.sqlite")).runs
    assert run.findings[0].rule == "decode-gaps"
    assert [(row["phase"], row["steps"]) for row in run.metrics["phase"]] == [("decode", 11)]
