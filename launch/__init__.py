"""Command lines of the checkout, run as `python -m launch.run`; absl flags, no mathematics."""
