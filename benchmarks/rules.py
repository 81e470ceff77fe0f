"""Compares a check by a book of 300 rules with the same check by today's book, on a trace and on one of 1 GB.

The rules that are added select by names, two selections each, of all kinds and with all conditions: a quarter of the
names are frequent ones of PyTorch, the others of libraries that a recording rarely has, as in a book that many people
wrote. One rule in four asks for a saving. The ratio is of CPU time, of checks in turns on the same machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Final

from kineto import BIN, FIXTURES, HERE, RECORDED, Cost, _long_trace, _measure

from advisor.rules.rule_file import load
from advisor.system.resources import rules_folder

SMALL: Final = HERE.parent / "fixtures/simulated-input-bound-v100"
_RULES: Final = 300
_TARGET: Final = 1.25
_LIBRARIES: Final = (
    *("apex", "deepspeed", "flash_attn", "xformers", "triton", "cutlass", "fbgemm", "torchao", "bitsandbytes", "nemo"),
    *("megatron", "fairscale", "dali", "warp", "cub", "thrust", "magma", "cudnn", "mkl", "onednn", "tensorrt", "vllm"),
)
_FREQUENT: Final = (
    *("aten::add", "aten::mul", "aten::copy_", "aten::convolution", "aten::batch_norm", "Memcpy", "elementwise"),
    "Optimizer",
)
_MEASURED: Final = (
    'one: {ops: "NAME"}\n  two: {kernels: "NAME", launched_by: "NAME"}',
    'one: {kernels: "NAME"}\n  two: {calls: "NAME", longer_us: 20}',
    'one: {frames: "NAME"}\n  two: {ops: "NAME", thread: steps}',
    'one: {ranges: "NAME"}\n  two: {ops: "NAME", within: one}',
    'one: {kernels: "NAME", exposed: true}\n  two: {copies: {kind: HtoD}, launched_by: "NAME"}',
)
_RULE: Final = """\
title: Rule NUMBER
measure:
  MEASURED
params: {most: 90 %}
when: one_share > most OR two_share > most
SAVING
says: "{{ one_names | detail }} {{ two_per_step | number }}"
why: It does.
fixes:
- {for: any, do: Do less.}
references:
- own choice: 90 %
cases:
- much: {one_share: 95 %, two_share: 0, two_per_step: 1, VERDICT}
- much of the other: {two_share: 95 %, one_share: 0, two_per_step: 1, VERDICT}
"""
_BY_SAVING: Final = "saving: {of: host_ops, without: one}", "one_gain_ms: 1, one_least_gain_ms: 1"
_BY_LEVEL: Final = "severity: {low: true, because: It names what ran.}", "fires: low"


def main() -> None:
    """Read the command line, measure, print; exit 1 if the larger book takes too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, default=max(RECORDED or FIXTURES, key=lambda path: path.stat().st_size))
    parser.add_argument("--gigabytes", type=float, default=1.0, help="text of the long trace; 0 for the small one only")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    traces = [SMALL]
    if options.gigabytes:
        traces.append(_long_trace(options.input, int(options.gigabytes * 1e9)))
    with tempfile.TemporaryDirectory() as folder:
        larger = _write_book(Path(folder))
        ratios = [_ratio(trace, larger, options.rounds) for trace in traces]
    sys.exit(int(max(ratios) > _TARGET))


def _ratio(trace: Path, larger: Path, rounds: int) -> float:
    check = [str(BIN / "advisor"), "check", str(trace), "-f", "json"]
    costs = _measure({"today's book": check, "300 rules": [*check, "--config", str(larger)]}, rounds)
    usual, more = (median(cost.cpu_s for cost in of) for of in costs.values())
    print(f"\n{trace.name}: 300 rules take {more / usual:.2f} times the CPU time of today's book (at most {_TARGET})")
    for name, of in costs.items():
        print(f"- {name}: {_spread(of)} s of CPU, {max(cost.peak_mb for cost in of):.0f} MB at most")
    return more / usual


def _spread(costs: list[Cost]) -> str:
    cpu = sorted(cost.cpu_s for cost in costs)
    return f"{median(cpu):.2f} ({cpu[0]:.2f} to {cpu[-1]:.2f})"


def _write_book(folder: Path) -> Path:
    """The configuration that adds as many rules to the shipped ones as 300 lack."""
    (folder / "rules").mkdir()
    for number, text in enumerate(islice(_texts(), _RULES - len(load([rules_folder()], cases=False)))):
        (folder / "rules" / f"rule-{number}.yaml").write_text(text)
    (folder / "advisor.yaml").write_text("rules: [rules]\n")
    return folder / "advisor.yaml"


def _texts() -> Iterator[str]:
    names = zip(cycle(_LIBRARIES), cycle(_LIBRARIES), cycle(_LIBRARIES), cycle(_FREQUENT), strict=False)
    every = (name for four in names for name in four)
    for number, (name, measured) in enumerate(zip(every, cycle(_MEASURED), strict=False)):
        own = name if name in _FREQUENT else f"{name}.*{number}"  # no two of them are the same
        text = _RULE.replace("MEASURED", measured).replace("NAME", own).replace("NUMBER", str(number))
        saving, verdict = _BY_SAVING if number % 4 == 0 else _BY_LEVEL
        yield text.replace("SAVING", saving).replace("VERDICT", verdict)


if __name__ == "__main__":
    main()
