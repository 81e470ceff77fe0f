"""Advice on recording goes with the profiler: who used nsys is told its options, and nobody else is."""

import re

import pytest

from tests import profiles

BOOK = profiles.book()
PROFILERS = {
    ("kineto",): r"torch\.profiler|ProfilerActivity",
    ("xplane",): r"tf\.profiler|jax\.profiler\.(?!StepTrace)|ProfilerOptions|profile_batch",
    ("nsys",): r"\bnsys\b|\bnvtx",
}
ONE_FORMAT = {"xplane", "nsys"}  # rules that apply to one alone need not say it in their fixes


@pytest.mark.parametrize("rule", BOOK.values(), ids=BOOK)
def test_a_fix_that_names_a_profiler_is_for_its_profiles_alone(rule):
    frameworks = set(rule.applies.framework)
    only_there = set(rule.applies.format) & ONE_FORMAT or (frameworks and frameworks <= {"tensorflow", "jax"})
    for fix in rule.fixes:
        named = {formats for formats, pattern in PROFILERS.items() if re.search(pattern, f"{fix.do} {fix.code}")}
        assert only_there or named <= {fix.format}, fix.do


@pytest.mark.parametrize("rule", [rule for rule in BOOK.values() if any(fix.format for fix in rule.fixes)])
def test_no_profile_is_left_without_a_fix(rule):
    for name in rule.applies.format or ("kineto", "xplane", "nsys"):
        assert [fix for fix in rule.fixes if not fix.format or name in fix.format]
