"""Part-based detectors."""
