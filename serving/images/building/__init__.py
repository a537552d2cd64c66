"""From a directory of trained files to an image in the model store."""
