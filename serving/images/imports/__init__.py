"""From the layers of an image that comes from outside to files in the model store. Nothing in them is
trusted.
"""
