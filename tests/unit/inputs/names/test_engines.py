from __future__ import annotations

import pytest

from advisor.inputs.names.engines import Batch, batch


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("step[DECODE bs=31]", Batch("decode", 31, 31)),
        ("step[EXTEND bs=15 toks=15360]", Batch("prefill", 15, 15360)),
        ("step[MIXED bs=9 toks=2048]", Batch("mixed", 9, 2048)),
        ("step[TARGET_VERIFY bs=4 toks=20]", Batch("verify", 4, 20)),
        ("step[IDLE bs=0]", None),
        ("execute_context_1(888_788544)_generation_0(0)", Batch("prefill", 1, 888)),
        ("execute_32_context_0(sq0sk0)_generation_32(sq32sk55086)", Batch("decode", 32, 32)),
        ("execute_8192_context_9(sq1)_generation_3(sq2)", Batch("mixed", 12, 8192)),
        ("_forward_step 7: 0 ctx reqs, 31 gen reqs", Batch("decode", 31, 31)),
        ("[Executor] _forward_step 8: 2 ctx reqs, 0 gen reqs", Batch("prefill", 2, None)),
        ("PjitFunction(prefill)", Batch("prefill")),
        ("jit_generate", Batch("decode")),
        ("step 12", None),
        ("ProfilerStep#3", None),
        ("execute_model", None),
        ("jit_train_step", None),
    ],
)
def test_a_mark_announces_a_batch(name: str, expected: Batch | None):
    assert batch(name) == expected
