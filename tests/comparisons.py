"""Comparisons made by hand for the tests of their renderers; every text of a profile begins with `text`."""

from __future__ import annotations

from advisor.model.comparison import (
    Amount,
    Comparison,
    FindingChange,
    Frame,
    Series,
    Shift,
    Side,
    SideFinding,
    StepChange,
    Verdict,
    WorkChange,
)
from advisor.model.finding import Saving
from advisor.model.reason import remark
from advisor.vocabulary.severities import Severity


def side_finding(severity: Severity | None = "high", text: str = "", high_ms: float = 59.0) -> SideFinding:
    saving = Saving(low_ms=30, high_ms=high_ms, low_share=0.2, high_share=0.3, of="input", method="m")
    return SideFinding(severity=severity, saving=saving, says=f"{text}33 % of each step waits for `next`.")


def side(text: str, *steps: float) -> Side:
    ordered = sorted(steps)
    return Side(
        series=(Series(run=f"{text}job", steps_ms=steps),),
        steps=len(steps),
        median_ms=ordered[len(steps) // 2] if steps else None,
        mean_ms=sum(steps) / len(steps) if steps else None,
        cv=0.01 if steps else None,
        devices=(f"{text}Tesla V100",),
        world_size=1,
    )


def frame(parent: int | None, name: str | None, base: float, head: float, own: float = 1) -> Frame:
    """A module, all of whose time is its own or none of it."""
    return Frame(
        parent=parent,
        name=name,
        kind="module",
        base_ms=base,
        base_self_ms=own * base,
        head_ms=head,
        head_self_ms=own * head,
    )


def slower(text: str = "", amount: int = 7) -> Comparison:
    """Slower because of its input, with everything that can be told and `amount` findings."""
    findings = (
        FindingChange(
            key="a",
            rule=f"{text}a",
            title=f"{text}The loader is late",
            status="new",
            base=None,
            head=side_finding(text=text),
        ),
        FindingChange(
            key="b",
            rule="b",
            title=f"{text}Kernels are tiny",
            status="unknown",
            base=side_finding("low", text),
            head=None,
            why=remark("side_could_not_tell", side="head", why=f"{text}no shapes"),
        ),
        *(
            FindingChange(
                key=f"k{n}",
                rule=f"k{n}",
                title=f"Finding {n}",
                status="same",
                base=side_finding("low"),
                head=side_finding("low"),
            )
            for n in range(amount - 2)
        ),
    )
    once, twice = (
        Amount(per_step=1.0, mean_us=377.0, ms_per_step=0.377),
        Amount(per_step=2, mean_us=377, ms_per_step=0.754),
    )
    work = (
        WorkChange(
            work="kernel",
            name=f"{text}void k<float>(int*)",
            size="8 \N{MULTIPLICATION SIGN} 128",
            status="count",
            base=once,
            head=twice,
        ),
        WorkChange(
            work="op", name=f"{text}aten::copy_", size=f"{text}[[3,224],[]]", status="appeared", base=None, head=once
        ),
        *(
            WorkChange(work="op", name=f"aten::op{n}", size=None, status="slower", base=once, head=twice, p=0.001)
            for n in range(40)
        ),
    )
    input_ = Shift(part="input", base_ms=20.0, head_ms=79.0)
    return Comparison(
        advisor_version=f"{text}0.1",
        verdict="slower",
        reason=remark("steps_differ", p=0.041, base=3, head=3),
        obstacle=None,
        cause=input_,
        change=StepChange(ratio=177 / 127, low=1.033, high=1.47, p=0.041, least=0.02),
        base=side(text, 126.0, 127.0, 163.0),
        head=side(text, 166.0, 177.0, 188.0),
        breakdown=(
            Shift(part="compute", base_ms=107.0, head_ms=98.0),
            input_,
            Shift(part="x", base_ms=0, head_ms=0),
        ),
        work=work,
        findings=findings,
        frames=(
            frame(None, f"{text}Net", 50, 60, own=0),
            frame(0, f"{text}Conv", 20, 35),
            frame(0, f"{text}Norm", 30, 15),
            frame(0, None, 0, 10),
            frame(None, f"{text}Dropout", 10, 0),
        ),
        notes=(remark("read_with_note", side="head", note=f"{text}the file ends early"),),
    )


def with_verdict(verdict: Verdict) -> Comparison:
    return slower().model_copy(update={"verdict": verdict, "cause": slower().cause if verdict == "slower" else None})


def nothing() -> Comparison:
    """Two sides of which nothing is known."""
    return Comparison(
        advisor_version="0.1",
        verdict="inconclusive",
        reason=remark("no_marked_step", sides="base and head"),
        obstacle="no-steps",
        cause=None,
        change=None,
        base=side(""),
        head=side(""),
        breakdown=(),
        work=(),
        findings=(),
    )


SAMPLES = {
    "slower": slower(),
    **{verdict: with_verdict(verdict) for verdict in ("faster", "same", "inconclusive")},
    "nothing": nothing(),
}
