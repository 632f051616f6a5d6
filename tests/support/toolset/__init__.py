"""Services in miniature, and the real HolmesGPT, for tests of the toolset operator."""
