"""`steersman demo`: the data, the environment and the script of the demo."""
