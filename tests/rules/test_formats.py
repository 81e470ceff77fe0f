"""Advice on recording goes with the profiler: who used nsys is told its options, and nobody else is."""

import re

from advisor.engine import check
from tests import profiles
from tests.strategies_xplane import GPU, HOST, event, line, plane, space

BOOK = profiles.book()
PROFILERS = {
    ("kineto",): r"torch\.profiler|ProfilerActivity",
    ("xplane",): r"tf\.profiler|jax\.profiler\.(?!StepTrace)|ProfilerOptions|profile_batch",
    ("nsys",): r"\bnsys\b|\bnvtx",
}
ONE_FORMAT = {"xplane", "nsys"}  # rules that apply to one alone need not say it in their fixes


def test_a_fix_that_names_a_profiler_is_for_its_profiles_alone():
    for rule in BOOK.values():
        frameworks = set(rule.applies.framework)
        only_there = set(rule.applies.format) & ONE_FORMAT or (frameworks and frameworks <= {"tensorflow", "jax"})
        for fix in rule.fixes:
            profilers = {formats for formats, words in PROFILERS.items() if re.search(words, f"{fix.do} {fix.code}")}
            assert only_there or profilers <= {fix.format}, (rule.id, fix.do)


def test_no_profile_is_left_without_a_fix():
    for rule in BOOK.values():
        formats = [fix.format for fix in rule.fixes]
        for name in (rule.applies.format or ("kineto", "xplane", "nsys")) if any(formats) else ():
            assert any(not of or name in of for of in formats), (rule.id, name)


def test_one_call_of_microseconds_has_nothing_to_judge_whoever_recorded_it(tmp_path):
    calls = [event("PjitFunction(f)", 10, 60), *(event("cuLaunchKernel", at, 5, correlation_id=at) for at in (20, 40))]
    ran = [event("fusion", at + 10, 3, correlation_id=at, hlo_module="jit_f") for at in (20, 40)]
    trace = tmp_path / "plugins" / "profile" / "run" / "host.xplane.pb"
    trace.parent.mkdir(parents=True)
    trace.write_bytes(space(plane(HOST, line(*calls)), plane(GPU, line(*ran, name="Stream #1(Compute)", id=1))))
    first = check([str(tmp_path)]).runs[0].findings[0]
    assert (first.rule, first.saving) == ("nothing-to-judge", None)
