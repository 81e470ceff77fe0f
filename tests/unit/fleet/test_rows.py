from __future__ import annotations

from advisor.fleet.columns import OF_RUN, Context, as_measured
from advisor.model.clause import Note
from advisor.model.reason import Reason
from tests.render_samples import RESNET, changed


def test_a_stored_fragment_is_one_to_the_judge():
    note = Reason.of(Note("fragment", kernels=21.0, host=705.0))
    run = changed(RESNET, source=changed(RESNET.source, salvaged=(note,)))
    context = Context(frameworks={}, used_steps={}, reasons={}, notes=(), file_notes=(), places={})
    assert as_measured(run, context, {}).is_fragment
    assert not as_measured(RESNET, context, {}).is_fragment


def test_a_run_is_as_busy_in_the_fleet_as_on_its_own_page():
    """Copies and communication are no useful work, though the device is busy with them."""
    assert RESNET.accounting is not None
    copying = changed(RESNET, metrics={"run": ({"device_busy_share": 0.99},)})
    assert OF_RUN["busy_share"].of(copying) == RESNET.accounting.busy_share
    assert OF_RUN["busy_share"].of(changed(RESNET, accounting=None)) is None
