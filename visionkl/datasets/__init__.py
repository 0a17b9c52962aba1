"""Data sets: PASCAL VOC, ImageNet, COCO, YOLO, plain folders, and a generated sample set."""
