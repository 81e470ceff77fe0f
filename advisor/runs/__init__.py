"""One run: its files read and measured, what a report says of it, and what is kept of it."""
