"""What every layer shares: boxes, annotations, detections, errors, seeds."""
