"""What if: a change goes in, an interval of saved milliseconds comes out.

A metric makes a `Change` with one of the builders and asks `saved`. How the recorded steps are replayed with it, when
that can be trusted, and what stands in for it, only this room knows.
"""
