"""How good a detector is: PASCAL VOC and COCO average precision."""
