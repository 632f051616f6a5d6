"""What users write: the configuration section, the ToolsetConfig kind, and annotations on Services."""
