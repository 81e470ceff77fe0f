from __future__ import annotations

from tests.tables import metrics_of, on_device, on_host, profile, step, view

MIB = 1 << 20

# us           0     100    200      300       400    500
# host         update  call 0   backward, call 1    update, call 2
HOST = [
    on_host("runtime", 150, 155),
    on_host("runtime", 320, 325),
    on_host("runtime", 550, 555),
    on_host("annotation", 0, 100, name="Optimizer.step#AdamW.step"),
    on_host("op", 300, 400, name="autograd::engine::evaluate_function: MmBackward0", thread=2),
    on_host("annotation", 450, 500, name="Optimizer.step#AdamW.step"),
]


def forward_reductions(does="reduce_scatter", nbytes=MIB, host=HOST):
    device = [on_device("collective", 100 * n + 200, 100 * n + 290, launch=n) for n in range(3)]
    facts = [{"device_op": n, "worker": 0, "op": does, "bytes": nbytes} for n in range(3)]
    made = profile(device, host, [step(1, 0, 600)], collectives=facts)
    return metrics_of(view(made))["forward_reductions_per_step"]


def test_a_reduction_between_an_update_and_its_backward_pass_is_of_activations():
    assert forward_reductions() == 1  # the second is in the backward pass, after the third none follows


def test_what_is_gathered_or_small_is_not():
    assert forward_reductions(does="all_gather") == 0
    assert forward_reductions(nbytes=MIB - 1) == 0


def test_without_updates_or_a_backward_pass_nothing_shows_it():
    assert forward_reductions(host=HOST[:3] + HOST[4:5]) == 0
    assert forward_reductions(host=HOST[:4]) == 0
