"""One device's steps: which are used, where their time goes, and what would be if something were changed."""
