"""What runs inside the interpreter of a recorded program: standard library only, Python 3.8 or later.

`advisor record` copies this package, with `sitecustomize.py`, into a folder on PYTHONPATH; `advisor.record` imports it.
Nothing here may change what the program does: whatever goes wrong is noted, and the program runs on.
"""
