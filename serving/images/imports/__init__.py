"""Imports the layers of images of other builders into the model store. Their content is untrusted."""
