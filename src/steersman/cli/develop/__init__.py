"""Commands for developers: the embedded API server, the real control plane, new projects."""
