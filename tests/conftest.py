"""Settings of all tests.

`make test` draws few examples, the same ones each time: it passes or fails each time. `make fuzz` draws many new ones.
"""

from datetime import timedelta

from hypothesis import settings

# A busy machine is no failure: speed is measured by benchmarks, never by a test. What hangs shows in `make fuzz`.
settings.register_profile("quick", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("fuzz", deadline=timedelta(seconds=20), max_examples=1_000, print_blob=True)
settings.load_profile("quick")
