"""Data sets: PASCAL VOC, ImageNet, COCO, YOLO, plain folders, and a generated sample set.

========================  ==================================================================================
`VOC`                     `voc.py`: VOC2007 to VOC2012 and everything in their layout; XML in `voc_xml.py`
`ImageNet`                `imagenet.py`: class folders or the flat validation set, synset names, boxes
`COCO`                    `coco.py`: one JSON file and a folder
`YOLO`                    `yolo.py`: a text file a picture, `data.yaml` or `classes.txt`
`ImageFolder`             `folder.py`: pictures, or class folders of pictures
`make_sample_set`         `sample.py`: generated in seconds, in VOC's layout
`download_voc`            `download.py`: checksums, resumption, safe unpacking
`census`                  `census.py`: what is in a data set, and what is wrong with it
`Dataset`, `Example`      `base.py`: what all share; `usable`, the pass over a data set
========================  ==================================================================================

All are `Dataset`s: ordered collections of `Example`s that decode nothing until asked. If unsure, put your own
pictures into VOC's layout: it keeps splits, boxes, flags and masks, and labelling programs write it.
"""
