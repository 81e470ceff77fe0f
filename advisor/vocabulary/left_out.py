"""Why a recorded step is not used."""

from typing import Final

LEFT_OUT: Final = {
    "no_end": "the recording ends before the step does",
    "no_device_work": "none of its device work was recorded",
    "kernels_absent": "it or the step before it launched kernels that were not recorded",
    "ended_early": "the recording ended before the device work did",
    "began_before": "it began before the recording, which lacks its first launches",
    "file_cut": "the file ends early and may lack device work",
    "outside": "outside --steps",
    "compiled": "code was compiled",
    "queue_filling": "the first recorded step takes {length:ms}, because the device's queue was still empty",
    "first_uses": "the first recorded step takes {length:ms}, of which start-up and first uses of kernels take {of:ms}",
    "first_pass": "the first step of the process takes {length:ms}; the median is {of:ms}",
    "cold_ops": (
        "the first recorded step takes {length:ms}, because its usual ops take {of:ms} longer than in later steps"
    ),
    "outlier": "an outlier of {length:ms}; the median is {of:ms}",
}
"""Why a recorded step is not used: `length` is the step's, `of` the time that the code speaks of."""

ONCE: Final = ("first_uses", "first_pass", "cold_ops")
"""Why a first step is left out that is long by what happens once."""

START_UP: Final = ("queue_filling", *ONCE)
"""Why a first step is left out whose length the steps after it do not have."""
