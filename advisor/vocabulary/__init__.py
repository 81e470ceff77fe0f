"""The words of the field, each in one place: what a code means, how it is measured, and how it is drawn.

Code works with codes and numbers; `present/` and the rules' YAML turn them into sentences with what stands here.
"""
