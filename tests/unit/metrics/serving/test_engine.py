from __future__ import annotations

import pytest

from tests.effort import every
from tests.tables import kernel, on_host, profile, worker_row


@pytest.mark.parametrize(
    ("name", "engine"),
    every(
        2,
        [
            ("step[DECODE bs=31]", "sglang"),
            ("execute_context_1(8)_generation_0(0)", "vllm"),
            ("[Executor] _forward_step 7: 0 ctx reqs, 8 gen reqs", "tensorrt_llm"),
            ("/opt/sglang/srt/managers/scheduler.py(7): run", "sglang"),
            ("train_step", None),
        ],
    ),
)
def test_the_engine_is_named_by_its_steps_and_its_code(name: str, engine: str | None):
    assert worker_row(profile([kernel(0, 80)], [on_host("annotation", 0, 90, name=name)]))["engine"] == engine
