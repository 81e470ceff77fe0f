"""Tries fixes on the job itself: patches are switched on from outside, and the step is timed with and without."""
