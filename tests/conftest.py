"""Settings of all tests."""

from hypothesis import settings

# A busy machine is no failure: speed is measured by benchmarks, never by a test.
settings.register_profile("advisor", deadline=None)
settings.load_profile("advisor")
