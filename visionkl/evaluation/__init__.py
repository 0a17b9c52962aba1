"""How good is a detector: the average precisions of PASCAL VOC and COCO, and the results files they score."""
