"""All ranks of a job: one clock, their collectives, who waits for whom, and what stragglers cost."""
