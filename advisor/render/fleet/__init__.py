"""Draws the report of a fleet's week: a page, Markdown for chat and mail, a terminal, JSON."""
