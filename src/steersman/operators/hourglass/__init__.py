"""Executors and performers of Hourglass: pods on the hardware they need, replaced only when they must be."""
