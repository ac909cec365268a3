"""Export of tags: to XMP files, images, text files, tables, data sets and ONNX graphs."""
