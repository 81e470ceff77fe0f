"""The runs of a whole fleet: a store of every run's findings and metrics, and the report of a week."""
