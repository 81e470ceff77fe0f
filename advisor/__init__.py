"""Why a GPU job is slow, what to change, and what the change is worth."""
