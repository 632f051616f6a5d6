"""`steersman toolset`: show, render, check and restore toolsets."""
