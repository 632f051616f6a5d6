"""Miniature clusters and other programs for tests of the reload operator."""
