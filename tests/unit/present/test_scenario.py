"""A scenario in words, as `advisor whatif` prints it."""

from __future__ import annotations

from advisor.present.trials import sentences
from advisor.whatif.scenario import Scenario, Stage


def test_each_line_is_a_change_with_those_before_it_and_says_who_sets_the_pace_then():
    stages = (
        Stage("kernels:gemm=2x", 100.0, 100.0, "the data loader"),
        Stage("input=0", 60.0, 62.0, "the GPU"),
        Stage("waits=0", 60.0, 61.6, "the GPU", "perhaps it saves nothing"),  # less by 0.4 of 100
        Stage("link=2x", 59.0, 61.1, "rank 3", "rank 3 takes long"),  # less by 1.0
    )
    refused = {"rank:7=typical": "there is no rank 7"}
    assert list(sentences(Scenario(100.0, "the data loader", stages, refused, 5, 6, 4, 0.012))) == [
        "A step takes 100 ms. The data loader sets the pace.",
        "With kernels:gemm=2x: saves nothing. The data loader sets the pace.",
        "With input=0 too: 100 \u2192 60\u201362 ms. Then the GPU sets the pace.",
        "With waits=0 too: saves nothing more. The GPU sets the pace.",
        "With link=2x too: 100 \u2192 59\u201361 ms. Then rank 3 sets the pace. Rank 3 takes long.",
        "rank:7=typical is left out: there is no rank 7.",
        "Replayed: 5 of 6 complete steps of each of 4 ranks. Without a change, the replay is off by 1.2 %.",
    ]


def test_a_recording_without_marked_steps_has_none_in_words():
    said = list(sentences(Scenario(78.0, "the host", (), {}, 1, 0, 2, 0.0)))
    assert said == [
        "No steps are marked. All that is used takes 78 ms. The host sets the pace.",
        "Replayed: what is used of each of 2 ranks. Without a change, the replay is off by 0 %.",
    ]
