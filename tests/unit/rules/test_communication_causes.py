"""One rank of jobs whose communication is exposed, each for another reason: the cause comes first, or none is named."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import pytest

from advisor.model.profile import Profile
from advisor.rules.evaluation import measured_run
from advisor.rules.judge import judge
from tests import profiles
from tests.tables import A100, Row, kernel, measured, on_device, on_host, profile, step

H100: Final[Row] = A100 | {"name": "NVIDIA H100 80GB HBM3", "capability": 9.0, "sm_count": 132}
MI300: Final[Row] = A100 | {
    "name": "AMD Instinct MI300X",
    "capability": 9.4,
    "sm_count": 304,
    "memory_bytes": 192 << 30,
}
GEMM: Final = {80: "ampere_bf16_s16816gemm_bf16_128x128_tn", 90: "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"}
STEPS: Final = 5
LAYERS: Final = 6
COMPUTE, EXCHANGE = 7, 20  # streams

Loop = Callable[["Tape", random.Random], None]


class Tape:
    """Ops of a job that the device bounds, one after another; times in us."""

    def __init__(self, name: str) -> None:
        self.now, self.name = 0.0, name
        self.device_ops: list[Row] = []
        self.facts: list[Row] = []

    def compute(self, us: float) -> None:
        self.device_ops.append(kernel(self.now, self.now + us, self._call(), name=self.name, stream=COMPUTE))
        self.now += us

    def exchange(self, us: float, does: str, name: str, *, stream: int = EXCHANGE, ago: float = 0.0) -> None:
        """A collective that starts now, or so long ago; what comes next waits for its end."""
        start = self.now - ago
        self.facts.append({"device_op": len(self.device_ops), "worker": 0, "op": does, "group_size": 8})
        self.device_ops.append(on_device("collective", start, start + us, self._call(), name=name, stream=stream))
        self.now = max(self.now, start + us)

    def _call(self) -> float:
        return max(1.0, self.now - 500)


def late_gathers(tape: Tape, draw: random.Random) -> None:
    for _ in range(LAYERS):
        tape.exchange(draw.uniform(200, 400), "all_gather", "ncclDevKernel_AllGather_RING_LL")
        tape.compute(draw.uniform(600, 900))


def early_gathers(tape: Tape, draw: random.Random) -> None:
    for _ in range(LAYERS):
        us = draw.uniform(600, 900)
        tape.compute(us)
        tape.exchange(us / 2, "all_gather", "ncclDevKernel_AllGather_RING_LL", ago=us)


def on_the_compute_stream(tape: Tape, draw: random.Random) -> None:
    for _ in range(LAYERS):
        tape.compute(draw.uniform(600, 900))
        tape.exchange(draw.uniform(200, 400), "all_reduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", stream=COMPUTE)


def late_experts(tape: Tape, draw: random.Random) -> None:
    library = draw.choice(["deep_ep::intranode", "dpsk::ep::internode", "uccl::internode"])
    for _ in range(LAYERS):
        tape.compute(draw.uniform(600, 900))
        tape.exchange(draw.uniform(200, 400), "barrier", f"void {library}::notify_dispatch<8>(int const*)")
        tape.exchange(50, "all_to_all", f"void {library}::dispatch<8>(int4*)")


def one_reduction(tape: Tape, draw: random.Random) -> None:
    for _ in range(LAYERS):
        tape.compute(draw.uniform(100, 200))
    tape.exchange(
        draw.uniform(3000, 4000), "all_reduce", draw.choice(["ncclDevKernel_Generic_4", "mscclKernel_Sum_half_LL"])
    )


def job(loop: Loop, seed: int, *, host: list[Row], device: Row) -> Profile:
    draw = random.Random(seed)  # noqa: S311 - repeatable
    tape, starts = Tape(GEMM[80 if device is A100 else 90]), [0.0]
    for _ in range(STEPS):
        loop(tape, draw)
        tape.compute(50)
        starts.append(tape.now)
    steps = [step(n, a, b) for n, (a, b) in enumerate(pairwise(starts))]
    backward = [on_host("op", a + 1, a + 2, name="AddmmBackward0") for a in starts[:-1]]
    workers = [{"worker": 0, "rank": 0, "world_size": 8, "framework": "pytorch"}]
    return profile(
        tape.device_ops, [*host, *backward], steps, devices=[device], collectives=tape.facts, workers=workers
    )


FSDP: Final = [on_host("op", 0, 1, name="FSDP::all_gather (layers.0)")]


@pytest.mark.parametrize(
    "device",
    [A100, *(pytest.param(device, marks=pytest.mark.soak) for device in (H100, MI300))],
    ids=["a100", "h100", "mi300"],
)
@pytest.mark.parametrize(
    ("loop", "host", "first"),
    [
        (late_gathers, FSDP, "parameters-not-prefetched"),
        (late_gathers, [], "communication-bound"),  # without names they may be gathers of activations
        (on_the_compute_stream, [], "collectives-on-compute-stream"),
        (late_experts, [], "expert-ranks-late"),
        (one_reduction, [], "communication-bound"),
    ],
)
def test_the_cause_of_exposed_communication_comes_first(loop: Loop, host: list[Row], first: str, device: Row):
    seed = sum(map(ord, loop.__name__))
    found = judge(measured_run(measured(job(loop, seed, host=host, device=device))), profiles.book(), {}).findings
    assert first in {found[0].rule, *(s.rule for s in found[0].symptoms)}
    saving = found[0].saving
    assert saving
    assert saving.low_ms <= saving.high_ms


def test_hidden_gathers_are_no_finding():
    found = judge(measured_run(measured(job(early_gathers, 1, host=FSDP, device=A100))), profiles.book(), {}).findings
    assert not {f.rule for f in found} & {"parameters-not-prefetched", "communication-bound", "communication-exposed"}
