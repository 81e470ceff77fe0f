"""Code hosts: a report or a comparison as one comment on a pull request, as a check run and as a commit status."""
