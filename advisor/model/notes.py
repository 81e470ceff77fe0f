"""What a reader of a report should know of the recording and of how it was read and judged: codes of notes.yaml."""

from collections.abc import Mapping
from typing import Final

from advisor.model.clause import Clause
from advisor.vocabulary.limits import table

FRAGMENT: Final = "fragment"
BARELY_RECORDED: Final = "barely_recorded"

NOTES: Final[Mapping[str, str]] = table(__file__, "notes")
DOUBTS: Final = frozenset(
    {
        *("malformed", "ends_early", "gzip_damaged", "gzip_cut_off", "bytes_changed", "cut_off", "damaged"),
        *("untimed_events", "unreadable_events", "odd_values", "partial_lines", "unsound_ops", "long_ops", "early_ops"),
        *("clocks_drift", "clocks_apart", "queue_waits", "calls_unjoined", "names_not_exported"),
        *(FRAGMENT, BARELY_RECORDED, "busy_machine", "few_cpus", "usual_step_unknown"),
        *("ranks_strangers", "ranks_sittings", "ranks_copied", "job_sizes_differ", "different_gpus"),
        *("one_rank_of_job", "some_ranks_of_job", "unmatched"),
    }
)
"""Notes that make numbers doubtful, and reasons why clocks do not fit."""


class Note(Clause):
    """A code of notes.yaml with its facts."""

    sentences = NOTES
