"""Objects in memory: the versioned store, get and list, watches, selection, and how objects are encoded."""
