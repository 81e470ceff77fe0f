"""Limits that sort time into categories; those that fire a finding stand in its rule."""

from pathlib import Path
from typing import Any, Final

from advisor.text import ns
from advisor.yamltree import Yaml

# The longest gap that counts as the price of launching: in a longer one the host does something else
LAUNCH_GAP_NS: Final = 1_000_000
# The longest stretch of Python between two ops that counts as their dispatch: a longer one does something else
DISPATCH_NS: Final = 1_000_000
# An op that stays queued for longer, with no other device in the process, waits for work that was not recorded
UNRECORDED_WAIT_NS: Final = 1_000_000
# No op reaches an idle device so long after its launch, which takes some 10 us: it stood behind other work
BACKLOG_NS: Final = 1_000_000
CODE_LOAD_NS: Final = 1_000_000  # a launch that takes so long loads the kernel's code
SET_UP_NS: Final = 10_000_000  # a call that takes so long before any work of the device sets CUDA or HIP up
# Own choice: pages and copies that are no further apart move for one purpose; between two lies the host's handling
PAGES_APART_NS: Final = 10_000_000
# So does one that takes so long later while the device does nothing: what else a call does takes milliseconds
LONG_CALL_NS: Final = 100_000_000
HANG_NS: Final = 10_000_000_000  # so long in the driver, until the recording ends, a thread may wait for good
# A request for a batch that takes longer, and brings none, waits until the loader's processes have ended
WORKER_JOIN_NS: Final = 1_000_000
# A queued op starts this soon after the one before it (p90 of queued gaps in public H100 and B200 traces)
QUEUED_GAP_NS: Final = 5_000
SLOW_CALL_NS: Final = 50_000  # a runtime call that takes longer waits (HolisticTraceAnalysis' outlier threshold)
MOST_RANKS: Final = 1 << 20  # no job has so many: what is listed by rank would take memory by the gigabyte
# Own choice, of the step: if even the rank that works longest waits for so much of it, none sets the pace alone
TURNS_SHARE: Final = 0.1
LONG_SHARE: Final = 0.05  # of the usual step: what uneven steps add is a part of the mean from here on
# Median absolute deviations in three standard deviations of a normal distribution: beyond them a step is uneven
THREE_SIGMA: Final = 3 * 1.4826
# With so much of the period in useful work that no finding shortens, and no loss to name, a job is called healthy. Own
# choice: public traces of jobs that experts call healthy are at work for 91 to 99 % of their time
HEALTHY_SHARE: Final = 0.9
# The share of the step from which the middle of a saving's interval is high, and medium; a smaller one is low. The two
# limits by which XProf's overview page calls launches and other work of the host moderate and high. Step times of one
# job vary by 1 to 3 %
SAVED_SHARES: Final = {"high": 0.15, "medium": 0.03}
_WORDS: Final = {
    "{code_load}": ns(CODE_LOAD_NS),
    "{dispatch}": ns(DISPATCH_NS),
    "{launch_gap}": ns(LAUNCH_GAP_NS),
    "{long_call}": ns(LONG_CALL_NS),
    "{pages_apart}": ns(PAGES_APART_NS),
    "{queued_gap}": ns(QUEUED_GAP_NS),
    "{set_up}": ns(SET_UP_NS),
    "{slow_call}": ns(SLOW_CALL_NS),
    "{unrecorded_wait}": ns(UNRECORDED_WAIT_NS),
    "{worker_join}": ns(WORKER_JOIN_NS),
}


def with_limits(text: str) -> str:
    """A formula or a rule's text in which `{launch_gap}`, `{slow_call}` and the like stand for these limits."""
    for name, limit in _WORDS.items() if "{" in text else ():
        text = text.replace(name, limit)
    return text


def table(module: str, name: str) -> Any:  # noqa: ANN401 - any table
    """What a YAML file beside a module says, with these limits in its texts."""
    return Yaml(with_limits(Path(module).with_name(f"{name}.yaml").read_text("utf-8"))).value
