"""What users write: both kinds, their scheduling fields, validation, and the configuration section."""
