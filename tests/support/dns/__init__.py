"""Name servers and zones for tests of the dns operator."""
