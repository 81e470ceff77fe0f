"""Functions of tf.data pipelines that are traced anew, beside tf.functions that are."""

from __future__ import annotations

import pytest

from tests.tables import metrics_of, on_host, profile, step, view

BUILD = "tf.function-graph_building"


@pytest.mark.parametrize(
    ("after", "part"),
    [("MapDataset", 0.75), ("ParallelMapDatasetV2", 0.75), ("__inference_train_7", 0), ("MakeIterator", 0)],
)
def test_a_graph_before_a_dataset_is_of_its_function(after: str, part: float):
    # 30 of the 40 that are compiled come before the op in question, which runs at 50; an op of the trace runs at 20
    host = [
        on_host("compile", 0, 30, name=BUILD),
        on_host("annotation", 20, 25, name="EagerLocalExecute: Const"),
        on_host("annotation", 50, 55, name=f"EagerLocalExecute: {after}"),
        on_host("compile", 60, 70, name=BUILD),
        on_host("annotation", 80, 85, name="EagerLocalExecute: __inference_step_3"),
    ]
    made = profile(host_ops=host, steps=[step(1, 0, 100, device=None)])
    assert metrics_of(view(made))["pipeline_build_part"] == pytest.approx(part)


def test_without_compilation_there_is_none():
    assert metrics_of(view(profile(steps=[step(1, 0, 100, device=None)])))["pipeline_build_part"] == 0
