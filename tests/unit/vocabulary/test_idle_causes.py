from __future__ import annotations

from typing import get_args

import pytest

from advisor.model.profile import HOST_OP_KINDS
from advisor.rules.rule_form import LossCode
from advisor.vocabulary.limits import LAUNCH_GAP_NS
from advisor.vocabulary.parts import HOST_RANGES, IDLE_CAUSES, IDLE_WORDS, PARTS, POOLS, Pool, idle_part

CODES = {idle_part(cause, ns) for cause in IDLE_CAUSES for ns in (LAUNCH_GAP_NS, LAUNCH_GAP_NS + 1)}


def test_every_cause_of_idle_time_is_a_part_of_the_step_and_has_words():
    assert PARTS.keys() >= CODES
    assert IDLE_WORDS.keys() == CODES


def test_causes_that_are_ranges_of_the_host_are_kinds_of_its_ops_and_come_first():
    assert set(HOST_RANGES) <= set(HOST_OP_KINDS.categories)
    assert tuple(IDLE_CAUSES)[: len(HOST_RANGES)] == HOST_RANGES


@pytest.mark.parametrize("code", PARTS)
def test_savings_come_out_of_pools_that_rules_may_name(code: str):
    assert get_args(Pool) == tuple(POOLS)
    assert {*PARTS[code].pools} <= {*POOLS, *get_args(LossCode)}
