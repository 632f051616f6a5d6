"""Pages of the documentation, and walks through their commands."""
