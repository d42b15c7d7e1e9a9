"""Watching a coordinator that serves: a status file, a page and metrics, all without a vote or a secret."""
