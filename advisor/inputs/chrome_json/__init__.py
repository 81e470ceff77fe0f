"""Chrome-trace JSON, the form that several profilers write: inflated, cut into pieces, decoded and repaired.

Here nothing is known of any profiler: a reader gives the types of an event and of what stands around the list of them.
"""
